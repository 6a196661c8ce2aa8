// A stream as the standard input of several ranks: whole for each that reads it, or the job fails.
#include "tools/horo/run/job_input.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <csignal>
#include <string>
#include <thread>

namespace horo::tools {
namespace {

using testing::HasSubstr;

constexpr std::size_t kKept = 1 << 20;
constexpr std::size_t kAll = 8 << 20;

class StreamForRanks : public testing::Test {
 protected:
  StreamForRanks() {
    std::signal(SIGPIPE, SIG_IGN);
    int ends[2];
    EXPECT_EQ(::pipe2(ends, O_CLOEXEC), 0);
    from_ = Descriptor(ends[0]);
    to_ = Descriptor(ends[1]);
  }
  ~StreamForRanks() override { ::ev_loop_destroy(loop_); }

  JobInput make_input(int fd, double begin_s) {
    JobInput::Orders orders;
    orders.say = [this](const std::string& text) { told_ += text + "\n"; };
    orders.fail = [this](const std::string& text) {
      failure_ = text;
      ::ev_break(loop_, EVBREAK_ALL);
    };
    return JobInput(loop_, fd, std::move(orders), {kKept, begin_s});
  }

  void feed() {
    const std::string piece(64 << 10, 'x');
    for (std::size_t i = 0; i < kAll / piece.size(); ++i) {
      EXPECT_EQ(::write(to_.get(), piece.data(), piece.size()), static_cast<ssize_t>(piece.size()));
    }
    to_.close();
  }

  // Until `enough` bytes, or the end.
  static void read_from(const Descriptor& input, std::atomic<std::size_t>& got, std::size_t enough = kAll + 1) {
    std::array<char, 4096> bytes;
    while (got < enough) {
      const ssize_t some = ::read(input.get(), bytes.data(), std::min(bytes.size(), enough - got));
      if (some <= 0) return;
      got += static_cast<std::size_t>(some);
    }
  }

  static void wait_for(const std::atomic<std::size_t>& got, std::size_t bytes) {
    while (got < bytes) std::this_thread::yield();
  }

  struct ev_loop* const loop_ = ::ev_loop_new(0);
  Descriptor from_, to_;
  std::string told_, failure_;
};

TEST_F(StreamForRanks, ARankThatReadsMoreSlowlyGetsAllOfIt) {
  JobInput input = make_input(from_.get(), 1'000);
  const Descriptor fast = input.add_rank(0), slow = input.add_rank(1);
  for (const Descriptor* one : {&fast, &slow}) ::fcntl(one->get(), F_SETFL, O_NONBLOCK);
  std::atomic<std::size_t> fast_got{0}, slow_got{0};
  {
    const std::jthread feeder([&] { feed(); });
    const auto turn = [&] {
      ::ev_run(loop_, EVRUN_NOWAIT);
      read_from(fast, fast_got);
    };
    while (fast_got < kKept) turn();
    read_from(slow, slow_got, 1);
    for (int i = 0; i < 10'000; ++i) turn();  // many more than all of the input needs
    EXPECT_LT(fast_got, 2 * kKept);
    while (slow_got < kAll && !testing::Test::HasFailure()) {
      turn();
      read_from(slow, slow_got);
    }
    from_.close();  // the feeder ends also after a failure
  }
  EXPECT_EQ(fast_got, kAll);
  EXPECT_EQ(slow_got, kAll);
  EXPECT_EQ(told_ + failure_, "");
}

TEST_F(StreamForRanks, ARankThatReadsNothingHoldsTheOthersUpForSomeTimeOnly) {
  JobInput input = make_input(from_.get(), 0.01);
  const Descriptor reads = input.add_rank(0);
  Descriptor silent = input.add_rank(1);
  std::atomic<std::size_t> got{0};
  {
    const std::jthread feeder([&] { feed(); }), reader([&] {
      read_from(reads, got);
      silent.close();
    });
    ::ev_run(loop_, 0);
  }
  EXPECT_EQ(got, kAll);
  EXPECT_THAT(told_, HasSubstr("rank 1 does not read its standard input"));
  EXPECT_EQ(failure_, "");
}

TEST_F(StreamForRanks, ARankThatBeginsWhenAPartIsGoneFailsTheJob) {
  JobInput input = make_input(from_.get(), 0.01);
  const Descriptor reads = input.add_rank(0), late = input.add_rank(1);
  std::atomic<std::size_t> got{0}, late_got{0};
  {
    const std::jthread feeder([&] { feed(); }), reader([&] { read_from(reads, got, kAll); }), second([&] {
      wait_for(got, kAll);
      read_from(late, late_got, 32 << 10);
    });
    ::ev_run(loop_, 0);
  }
  EXPECT_THAT(failure_, HasSubstr("rank 1 begins to read its standard input too late"));
}

TEST_F(StreamForRanks, AnInputThatCannotBeReadIsNotItsEnd) {
  int ends[2];
  ASSERT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends), 0);
  const Descriptor from(ends[0]);
  Descriptor to(ends[1]);
  JobInput input = make_input(from.get(), 1'000);
  const Descriptor rank = input.add_rank(0);
  ASSERT_EQ(::write(from.get(), "x", 1), 1);
  to.close();  // with a byte that was not read: the connection is reset
  ::ev_run(loop_, 0);
  EXPECT_EQ(failure_, "cannot read the standard input: Connection reset by peer");
  ::fcntl(rank.get(), F_SETFL, O_NONBLOCK);
  char byte = 0;
  EXPECT_EQ(::read(rank.get(), &byte, 1), -1) << "the rank would take it for the end of the input";
}

}  // namespace
}  // namespace horo::tools
