// The notice of a rank of an elastic job: what its session tells the caller, and the reason of its leave. The test has
// the guard's end of the socket.
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <memory>
#include <span>
#include <vector>

#include "elastic/messages.h"
#include "horo/horo.h"

namespace horo {
namespace {

class OneRank : public testing::Test {
 protected:
  void SetUp() override {
    ASSERT_EQ(::socketpair(AF_UNIX, SOCK_SEQPACKET, 0, ends_.data()), 0);
    Config config;
    config.min_np = 1;
    config.guard_fd = ends_[1];  // the session's
    session_ = std::make_unique<Session>(config);
    std::byte page{};  // with its descriptor (elastic/owner_page.h)
    ASSERT_EQ(::recv(ends_[0], &page, 1, 0), 1);
    EXPECT_EQ(receive(), MemberMessage(Installed{0}));
  }
  void TearDown() override {
    session_.reset();
    ::close(ends_[0]);
  }

  MemberMessage receive() {
    std::array<std::byte, 4'096> bytes{};
    const ssize_t got = ::recv(ends_[0], bytes.data(), bytes.size(), 0);
    return decode_member_message(std::span(bytes).first(static_cast<std::size_t>(std::max<ssize_t>(got, 0))));
  }
  void drain(std::uint32_t grace_ms) {
    const std::vector<std::byte> bytes = encode(GuardMessage(Drain{grace_ms}));
    ASSERT_EQ(::send(ends_[0], bytes.data(), bytes.size(), 0), static_cast<ssize_t>(bytes.size()));
  }
  // Answers come in order: the notice has arrived then.
  void sync() {
    const std::vector<std::byte> bytes = encode(GuardMessage(Ask{}));
    ASSERT_EQ(::send(ends_[0], bytes.data(), bytes.size(), 0), static_cast<ssize_t>(bytes.size()));
    EXPECT_TRUE(std::holds_alternative<Report>(receive()));
  }

  std::array<int, 2> ends_{};
  std::unique_ptr<Session> session_;
};

TEST_F(OneRank, ANoticeIsToldWithTheEndOfItsGraceAndTheLeaveHasItAsItsReason) {
  EXPECT_FALSE(session_->notice());
  const TimePoint before = Clock::now();
  drain(60'000);
  sync();
  const auto until = session_->notice();
  ASSERT_TRUE(until);
  EXPECT_GE(*until, before + std::chrono::seconds(60));
  EXPECT_LE(*until, Clock::now() + std::chrono::seconds(60));
  std::vector<float> x(8, 1.0F);
  TensorSpec spec;
  spec.name = "x";
  spec.shape = {8};
  session_->run(spec, x.data(), x.data());  // collectives go on
  session_->shutdown();
  EXPECT_EQ(receive(), MemberMessage(Leave{false, kDrained}));
}

TEST_F(OneRank, ALeaveOfACallerThatHasNotAskedIsAPlainEnd) {
  drain(60'000);
  sync();
  session_->shutdown();
  EXPECT_EQ(receive(), MemberMessage(Leave{}));
}

}  // namespace
}  // namespace horo
