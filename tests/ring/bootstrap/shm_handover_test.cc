// Handover of shared memory between two ranks, also where the peer or the kernel refuses it.

#include "ring/bootstrap/shm_handover.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <linux/capability.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <stdexcept>

#include "horo/base/say.h"
#include "ring/shm/segment.h"
#include "ring/transport/stream.h"
#include "tests/ring/run_ranks.h"

namespace horo::test {
namespace {

using testing::AllOf;
using testing::HasSubstr;

std::size_t descriptors_here() {
  const std::filesystem::directory_iterator files("/proc/self/fd");
  return static_cast<std::size_t>(std::distance(begin(files), end(files)));
}

Identity one_of_two(int rank) {
  Identity self;
  self.rank = rank;
  self.size = 2;
  return self;
}

struct UnixPair {
  Fd theirs, ours;

  UnixPair() {
    int ends[2];
    if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, ends) != 0)
      throw std::runtime_error("socketpair");
    theirs = Fd(ends[0]);
    ours = Fd(ends[1]);
  }
  static std::vector<Connection> to(int peer, Fd fd) {
    std::vector<Connection> connections;
    connections.push_back({std::move(fd), peer, 0, Purpose::kData, say("rank ", peer), std::nullopt});
    return connections;
  }
};

// The start of rank 1, where the test is rank 0 and answers the offer with these bytes; "": rank 0 ends.
struct Offer {
  std::string thrown;
  bool has_memory = false;

  Offer(const std::string& transport, const std::string& answer) {
    UnixPair pair;
    Fd theirs = std::move(pair.theirs);
    std::vector<Connection> connections = UnixPair::to(0, std::move(pair.ours));
    connections.front().name = "rank 0 (host far)";
    Config config = config_of(1, 2, "");
    config.transport = transport;
    if (!answer.empty()) send_raw(theirs, answer);
    if (answer.empty()) Fd(std::move(theirs));
    try {
      share_memory(config, one_of_two(1), connections, soon());
      has_memory = connections.front().memory.has_value();
    } catch (const std::exception& error) {
      thrown = error.what();
    }
  }

  static void send_raw(const Fd& fd, const std::string& text) {
    iovec part = as_iovec(std::as_bytes(std::span(text)));
    send_some(fd.get(), {&part, 1});
  }
};

// 0, or the errno.
int send_files(const Fd& fd, char text, const std::vector<int>& files) {
  iovec part{&text, 1};
  std::vector<std::uint64_t> extra(CMSG_SPACE(files.size() * sizeof(int)) / sizeof(std::uint64_t) + 1);
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = extra.data();
  message.msg_controllen = CMSG_SPACE(files.size() * sizeof(int));
  cmsghdr* header = CMSG_FIRSTHDR(&message);
  header->cmsg_level = SOL_SOCKET;
  header->cmsg_type = SCM_RIGHTS;
  header->cmsg_len = CMSG_LEN(files.size() * sizeof(int));
  std::memcpy(CMSG_DATA(header), files.data(), files.size() * sizeof(int));
  return ::sendmsg(fd.get(), &message, MSG_DONTWAIT | MSG_NOSIGNAL) == 1 ? 0 : errno;
}

// While it exists, this thread and the threads that it starts lack the capabilities by which root may pass more
// descriptors than the limit.
class WithoutCapabilities {
 public:
  WithoutCapabilities() {
    ::syscall(SYS_capget, &header_, before_);
    __user_cap_data_struct less[2] = {before_[0], before_[1]};
    less[0].effective &= ~(1u << CAP_SYS_RESOURCE | 1u << CAP_SYS_ADMIN);
    ::syscall(SYS_capset, &header_, less);
  }
  ~WithoutCapabilities() { ::syscall(SYS_capset, &header_, before_); }

 private:
  __user_cap_header_struct header_{_LINUX_CAPABILITY_VERSION_3, 0};
  __user_cap_data_struct before_[2]{};
};

bool a_segment_is_mapped() {
  std::ifstream maps("/proc/self/maps");
  const std::string all{std::istreambuf_iterator<char>(maps), {}};
  return all.find("memfd:horo") != std::string::npos;
}

// More descriptors in flight than this process may have open.
class TooManyInFlight {
 public:
  TooManyInFlight() : file_(::open("/dev/null", O_RDONLY | O_CLOEXEC)) {
    ::getrlimit(RLIMIT_NOFILE, &before_);
    for (int i = 0; i < 2; ++i) send_files(pair_.theirs, 'x', std::vector<int>(200, file_.get()));
    const rlimit less{300, before_.rlim_max};
    ::setrlimit(RLIMIT_NOFILE, &less);
  }
  ~TooManyInFlight() { ::setrlimit(RLIMIT_NOFILE, &before_); }
  bool is_refused() const { return send_files(pair_.theirs, 'x', {file_.get()}) == ETOOMANYREFS; }
  // Discards the descriptors in flight as soon as a rank has created a segment.
  void discard_all() {
    for (const TimePoint until = soon(); !a_segment_is_mapped() && Clock::now() < until;) {
    }
    std::array<char, 16> bytes;
    while (::recv(pair_.ours.get(), bytes.data(), bytes.size(), MSG_DONTWAIT) > 0) {
    }
  }

 private:
  WithoutCapabilities without_;
  UnixPair pair_;
  Fd file_;
  rlimit before_{};
};

struct Outcome {
  std::vector<std::string> thrown;
  int have_memory = 0;
};

// Two ranks hand memory over while `meanwhile` runs.
Outcome hand_over(
    const std::string& transport, TimePoint until, const std::function<void()>& meanwhile = [] {}) {
  UnixPair pair;
  std::vector<Connection> of_zero = UnixPair::to(1, std::move(pair.theirs)),
                          of_one = UnixPair::to(0, std::move(pair.ours));
  const auto share = [&](int rank, std::vector<Connection>& connections) {
    Config config = config_of(rank, 2, "");
    config.transport = transport;
    share_memory(config, one_of_two(rank), connections, until);
  };
  const auto errors = run_threads({[&] { share(0, of_zero); }, [&] { share(1, of_one); }, meanwhile});
  const int have_memory = of_zero.front().memory.has_value() + of_one.front().memory.has_value();
  return {{message_of(errors[0]), message_of(errors[1])}, have_memory};
}

TEST(ShmHandover, APeerThatHasMappedTheSegmentSharesIt) {
  EXPECT_TRUE(Offer("shm", "+").has_memory);
}

TEST(ShmHandover, WhereThePeerCannotMapItAutoUsesTheSocket) {
  const Offer offer("auto", "-");
  EXPECT_EQ(offer.thrown, "");
  EXPECT_FALSE(offer.has_memory);
}

TEST(ShmHandover, WhereThePeerCannotMapItShmIsAnErrorThatNamesSettingRankAndHost) {
  const Offer offer("shm", "-");
  EXPECT_THAT(offer.thrown, HasSubstr("HORO_TRANSPORT=shm: rank 1 shares no memory with rank 0 (host far)"));
  EXPECT_THAT(offer.thrown, HasSubstr("HORO_TRANSPORT=auto or tcp"));
}

TEST(ShmHandover, APeerThatEndsMeanwhileIsNamed) {
  EXPECT_THAT(Offer("shm", "").thrown, HasSubstr("rank 0 (host far) is lost"));
}

// Also behind earlier frames, with a checksum or without one.
TEST(ShmHandover, TheAbortNoticeOfAPeerIsFound) {
  const auto text_of = [](const std::vector<std::byte>& message) {
    return std::string(reinterpret_cast<const char*>(message.data()), message.size());
  };
  const auto notice = text_of(message_of(one_of_two(0).frame(FrameKind::kAbort), encode(AbortNotice{0, "had enough"})));
  Frame before = one_of_two(0).frame(FrameKind::kControl);
  const auto plain = text_of(message_of(before, std::vector<std::byte>(9)));
  before.is_checked = true;
  const auto checked = text_of(message_of(before, std::vector<std::byte>(9)));
  for (const char* transport : {"shm", "auto"}) {
    for (const std::string& first : {std::string(), plain, checked, checked + plain}) {
      EXPECT_EQ(Offer(transport, first + notice).thrown, "had enough") << first.size();
    }
  }
}

// Rank 2 is lost while rank 1 shares memory with rank 0, or is about to.
class ThirdIsLost : public testing::Test {
 protected:
  void start_zero() { share_memory(config_of_three(0), one_of_three(0), of_zero_, soon()); }
  void start_one(const std::function<void()>& meanwhile = [] {}) {
    of_one_ = UnixPair::to(0, std::move(to_zero_.ours));
    of_one_.push_back(std::move(UnixPair::to(2, std::move(to_two_.ours)).front()));
    const auto errors = run_threads({[this] { share_memory(config_of_three(1), one_of_three(1), of_one_, soon()); },
                                     [&] {
                                       meanwhile();
                                       Fd(std::move(to_two_.theirs));
                                     }});
    EXPECT_EQ(origin_of(errors[0]), 2);
  }

 private:
  static Config config_of_three(int rank) {
    Config config = config_of(rank, 3, "");
    config.transport = "shm";
    return config;
  }
  static Identity one_of_three(int rank) {
    Identity self = one_of_two(rank);
    self.size = 3;
    return self;
  }

  UnixPair to_zero_, to_two_;
  std::vector<Connection> of_one_;

 protected:
  std::vector<Connection> of_zero_ = UnixPair::to(1, std::move(to_zero_.theirs));
};

TEST_F(ThirdIsLost, ARankThatStartsLaterNamesIt) {
  start_one();
  try {
    start_zero();
    FAIL() << "rank 1 has given up";
  } catch (const PeerLost& lost) {
    EXPECT_EQ(lost.origin(), 2) << lost.what();
  }
}

TEST_F(ThirdIsLost, ARankThatHasFinishedGetsTheNotice) {
  start_one([this] { start_zero(); });
  Connection& one = of_zero_.front();
  const auto stream = make_shm_stream(std::move(one.fd), std::move(one.memory.value()), /*is_maker=*/false, 4096);
  std::vector<std::byte> bytes(4096);
  iovec part = as_iovec(bytes);
  const Moved moved = stream->receive({&part, 1});
  const Frame frame = decode_frame(std::span(bytes).first<kFrameBytes>(), moved.bytes);
  EXPECT_EQ(frame.kind, FrameKind::kAbort);
  EXPECT_EQ(decode_abort(std::span(bytes).subspan(kFrameBytes, frame.length)).origin, 2);
}

TEST(ShmHandover, APeerWithAnUnknownAnswerIsLost) {
  EXPECT_THAT(Offer("shm", "?").thrown,
              HasSubstr("rank 1: rank 0 (host far) sent an unknown answer about shared memory"));
}

TEST(ShmHandover, UnexpectedDescriptorsAreClosed) {
  const ShmSegment segment = ShmSegment::create(shm_stream_bytes(4096));
  const std::size_t before = descriptors_here();
  {
    UnixPair pair;
    send_files(pair.theirs, '+', {segment.file(), segment.file(), segment.file()});
    std::vector<Connection> connections = UnixPair::to(1, std::move(pair.ours));
    Config config = config_of(0, 2, "");
    config.transport = "auto";
    share_memory(config, one_of_two(0), connections, soon());
    EXPECT_TRUE(connections.front().memory.has_value());
    EXPECT_TRUE(connections.front().arena != nullptr);
  }
  EXPECT_EQ(descriptors_here(), before);
}

TEST(ShmHandover, WithTooManyDescriptorsInFlightAutoUsesTheSocketOnBothRanks) {
  const TooManyInFlight crowd;
  if (!crowd.is_refused()) GTEST_SKIP() << "the kernel counts none of them";
  const Outcome outcome = hand_over("auto", soon(200));
  EXPECT_EQ(outcome.thrown, (std::vector<std::string>{"", ""}));
  EXPECT_EQ(outcome.have_memory, 0);
}

TEST(ShmHandover, WithTooManyDescriptorsInFlightShmNamesTheCause) {
  const TooManyInFlight crowd;
  if (!crowd.is_refused()) GTEST_SKIP() << "the kernel counts none of them";
  EXPECT_THAT(hand_over("shm", soon(200)).thrown[1],
              AllOf(HasSubstr("HORO_TRANSPORT=shm: rank 1 shares no memory"), HasSubstr("ulimit -n")));
}

TEST(ShmHandover, TheOfferIsRepeatedUntilDescriptorsHaveArrived) {
  TooManyInFlight crowd;
  if (!crowd.is_refused()) GTEST_SKIP() << "the kernel counts none of them";
  const Outcome outcome = hand_over("shm", soon(), [&] { crowd.discard_all(); });
  EXPECT_EQ(outcome.thrown, (std::vector<std::string>{"", ""}));
  EXPECT_EQ(outcome.have_memory, 2);
}

}  // namespace
}  // namespace horo::test
