// One end of a connection is a raw socket that sends invalid bytes. The other end ends the connection and names it.

#include <gtest/gtest.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>

#include <algorithm>
#include <atomic>
#include <random>
#include <thread>

#include "horo/base/crc32c.h"
#include "horo/base/error.h"
#include "ring/transport/factories.h"
#include "ring/transport/handshake.h"
#include "tests/ring/run_ranks.h"

namespace horo::test {
namespace {

using Bytes = std::vector<std::byte>;

Identity tcp_identity(int rank) {
  Identity self;
  self.job = 77;
  self.epoch = 5;
  self.incarnation = 3;
  self.rank = rank;
  self.size = 2;
  return self;
}

Bytes framed(Frame frame, std::span<const std::byte> payload) {
  frame.length = payload.size();
  const FrameBytes header = encode(frame);
  Bytes bytes(header.size() + payload.size());
  std::copy(payload.begin(), payload.end(), std::copy(header.begin(), header.end(), bytes.begin()));
  return bytes;
}

// A frame with a checksum of its payload.
Bytes checked(Frame frame, std::span<const std::byte> payload) {
  frame.is_checked = true;
  Bytes bytes = framed(frame, payload);
  const ChecksumBytes tail = checksum_bytes(crc32c(bytes));
  bytes.insert(bytes.end(), tail.begin(), tail.end());
  return bytes;
}

Frame data_frame() {
  return tcp_identity(1).frame(FrameKind::kData);
}

Bytes notice(FrameKind kind, int about) {
  return framed(tcp_identity(1).frame(kind), encode(AbortNotice{about, "it is no more"}));
}

// Transport and control link of rank 0 to rank 1, which is the test.
class RawPeer {
 public:
  RawPeer() {
    Config config = config_of(0, 2, "");
    config.deadline = std::chrono::milliseconds(5'000);
    config.max_early_bytes = 10'000;
    config.max_message_bytes = 10'000;
    transport = make_stream_transport(config, tcp_identity(0), connect(data));
    control = make_stream_control(config, tcp_identity(0), connect(control_socket));
  }

  static void send(const Fd& fd, std::span<const std::byte> bytes) {
    iovec part = as_iovec(bytes);
    send_some(fd.get(), {&part, 1});
  }

  // Sends all bytes, as fast as rank 0 reads; stops when rank 0 closes.
  void send_all(std::span<const std::byte> bytes) const {
    for (const TimePoint until = soon(); !bytes.empty() && Clock::now() < until;) {
      iovec part = as_iovec(bytes);
      const Moved moved = send_some(data.get(), {&part, 1});
      if (moved.ended) return;
      bytes = bytes.subspan(moved.bytes);
      pollfd ready{data.get(), POLLOUT, 0};
      ::poll(&ready, 1, 100);
    }
  }

  // What rank 0 throws when it waits for a message that fills `in`.
  std::exception_ptr receive(Bytes& in) { return receive_from(1, *transport, in); }

  // The bytes that rank 0 sends until it closes.
  Bytes read_to_end() const {
    Bytes all, some(1 << 16);
    for (const TimePoint until = soon(); Clock::now() < until;) {
      iovec part = as_iovec(some);
      const Moved moved = receive_some(data.get(), {&part, 1});
      if (moved.ended) break;
      all.insert(all.end(), some.begin(), some.begin() + static_cast<long>(moved.bytes));
      pollfd ready{data.get(), POLLIN, 0};
      ::poll(&ready, 1, 100);
    }
    return all;
  }

  Fd data, control_socket;
  std::unique_ptr<Transport> transport;
  std::unique_ptr<ControlLink> control;

 private:
  static std::vector<Connection> connect(Fd& theirs) {
    int ends[2];
    if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, ends) != 0)
      throw std::runtime_error("socketpair");
    theirs = Fd(ends[0]);
    std::vector<Connection> connections;
    connections.push_back({Fd(ends[1]), 1, 3, Purpose::kData});
    return connections;
  }
};

TEST(TcpLink, AMessageMayArriveByteByByte) {
  RawPeer peer;
  const Bytes payload(100, std::byte{9});
  const Bytes bytes = framed(data_frame(), payload);
  std::jthread writer([&] {
    for (const std::byte byte : bytes) RawPeer::send(peer.data, {&byte, 1});
  });
  Bytes in(100);
  EXPECT_EQ(message_of(peer.receive(in)), "");
  EXPECT_EQ(in, payload);
}

TEST(TcpLink, ACheckedMessageMayArriveByteByByte) {
  RawPeer peer;
  const Bytes payload(100, std::byte{9}), bytes = checked(data_frame(), payload);
  std::jthread writer([&] {
    for (const std::byte byte : bytes) RawPeer::send(peer.data, {&byte, 1});
  });
  Bytes in(100);
  EXPECT_EQ(message_of(peer.receive(in)), "");
  EXPECT_EQ(in, payload);
}

TEST(TcpLink, EveryChangedBitOfACheckedMessageIsAnErrorThatNamesTheLink) {
  const Bytes good = checked(data_frame(), Bytes(40, std::byte{0x5a}));
  for (std::size_t bit = 0; bit < 8 * good.size(); ++bit) {
    RawPeer peer;
    Bytes bytes = good;
    bytes[bit / 8] ^= static_cast<std::byte>(1 << bit % 8);
    RawPeer::send(peer.data, bytes);
    Bytes in(40);
    const auto error = peer.receive(in);
    EXPECT_EQ(origin_of(error), 1) << "bit " << bit;
    EXPECT_NE(message_of(error).find("rank 0: connection to rank 1 was ended"), std::string::npos) << "bit " << bit;
  }
}

// Changes one to eight bytes of header, payload or checksum, as a faulty memory or cable does.
TEST(TcpLink, OfTenThousandChangedMessagesNoneIsAccepted) {
  constexpr int kMessages = HORO_SANITIZED ? 1'000 : 10'000;
  std::mt19937_64 chance(12);
  const auto below = [&](std::size_t end) { return static_cast<std::size_t>(chance() % end); };
  int found = 0;
  for (int message = 0; message < kMessages; ++message) {
    Bytes payload(below(4'000));
    for (std::byte& byte : payload) byte = static_cast<std::byte>(chance());
    const Bytes good = checked(data_frame(), payload);
    Bytes bytes = good;
    for (std::size_t changes = 1 + below(8); changes > 0 || bytes == good; changes -= changes > 0 ? 1 : 0) {
      bytes[below(bytes.size())] ^= static_cast<std::byte>(1 + below(255));
    }
    RawPeer peer;
    RawPeer::send(peer.data, bytes);
    Bytes in(payload.size());
    if (origin_of(peer.receive(in)) == 1) ++found;
  }
  EXPECT_EQ(found, kMessages);
}

TEST(TcpLink, AChangedBitOfALongMessageIsFoundAtAnyOffset) {
  Bytes payload(600'000);
  for (std::size_t i = 0; i < payload.size(); ++i) payload[i] = static_cast<std::byte>(i * 7);
  const Bytes good = checked(data_frame(), payload);
  for (const std::size_t at : {kFrameBytes, kFrameBytes + 4'020, good.size() / 2, good.size() - 5, good.size() - 1}) {
    RawPeer peer;
    Bytes bytes = good, in(payload.size());
    bytes[at] ^= std::byte{0x10};
    std::jthread writer([&] { peer.send_all(bytes); });
    const std::string text = message_of(peer.receive(in));
    EXPECT_NE(text.find("something on the way changed bytes"), std::string::npos) << at << ": " << text;
  }
}

TEST(TcpLink, AChangedBitOfAControlMessageIsALoss) {
  const Bytes good = checked(tcp_identity(1).frame(FrameKind::kControl), Bytes(20, std::byte{7}));
  for (std::size_t bit = 8 * kFrameBytes; bit < 8 * good.size(); ++bit) {
    RawPeer peer;
    Bytes bytes = good;
    bytes[bit / 8] ^= static_cast<std::byte>(1 << bit % 8);
    RawPeer::send(peer.control_socket, bytes);
    const auto events = peer.control->wait(soon());
    ASSERT_EQ(events.size(), 1u) << "bit " << bit;
    EXPECT_EQ(events[0].kind, ControlEvent::Kind::kLost) << "bit " << bit;
  }
}

// A peer on loopback never falls silent, but data for a peer that does not read stays unacknowledged as well.
TEST(TcpLink, AConnectionWhosePeerAcknowledgesNothingEndsWithinTheLimit) {
  const Fd listener = listen_at(resolve("127.0.0.1:0", "test").front());
  const Fd here = dial(local_address(listener.get()));
  pollfd coming{listener.get(), POLLIN, 0};
  ASSERT_EQ(::poll(&coming, 1, 5'000), 1);
  const Fd there = accept_at(listener.get());
  limit_silence(here.get(), std::chrono::milliseconds(300));
  const Bytes bytes(1 << 20);
  Moved moved;
  for (const TimePoint until = soon(); !moved.ended && Clock::now() < until;) {
    iovec part = as_iovec(bytes);
    moved = send_some(here.get(), {&part, 1});
    pollfd ready{here.get(), POLLOUT, 0};
    if (moved.bytes == 0) ::poll(&ready, 1, 100);
  }
  EXPECT_EQ(moved.error, ETIMEDOUT);
}

// Three probes, so that the loss of one does not end the connection; and it does not end before the limit.
TEST(TcpLink, AnIdleConnectionIsProbedThreeTimesBeforeItEnds) {
  const Fd socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const auto option = [&](int name) {
    int value = 0;
    socklen_t length = sizeof(value);
    EXPECT_EQ(::getsockopt(socket.get(), IPPROTO_TCP, name, &value, &length), 0);
    return value;
  };
  for (const int limit_ms : {1, 999, 1'000, 2'000, 3'000, 5'999, 6'000, 60'000, 3'600'000}) {
    limit_silence(socket.get(), std::chrono::milliseconds(limit_ms));
    const int probed_ms = 1'000 * (option(TCP_KEEPIDLE) + 3 * option(TCP_KEEPINTVL));
    EXPECT_EQ(option(TCP_USER_TIMEOUT), std::max(limit_ms, probed_ms)) << limit_ms;
    EXPECT_LE(probed_ms, std::max(limit_ms, 5'000)) << limit_ms;
  }
}

TEST(TcpLink, AFrameOfAnotherEpochJobSenderOrIncarnationEndsTheLink) {
  const std::function<void(Frame&)> changes[] = {[](Frame& f) { ++f.epoch; }, [](Frame& f) { ++f.job; },
                                                 [](Frame& f) { f.from = 0; }, [](Frame& f) { ++f.incarnation; },
                                                 [](Frame& f) { f.kind = FrameKind::kHello; }};
  for (const auto& change : changes) {
    RawPeer peer;
    Frame frame = data_frame();
    change(frame);
    RawPeer::send(peer.data, framed(frame, {}));
    Bytes in;
    const auto error = peer.receive(in);
    EXPECT_EQ(origin_of(error), 1);
    EXPECT_NE(message_of(error).find("rank 0: connection to rank 1"), std::string::npos) << message_of(error);
  }
}

TEST(TcpLink, GarbageEndsTheLink) {
  RawPeer peer;
  RawPeer::send(peer.data, Bytes(1000, std::byte{0x5a}));
  Bytes in(1);
  EXPECT_NE(message_of(peer.receive(in)).find("connection to rank 1 was ended"), std::string::npos);
}

TEST(TcpLink, ANoticeThatIsTooLongEndsTheLink) {
  RawPeer peer;
  Frame frame = tcp_identity(1).frame(FrameKind::kAbort);
  frame.length = 1ull << 40;
  RawPeer::send(peer.data, encode(frame));
  Bytes in(1);
  EXPECT_EQ(origin_of(peer.receive(in)), 1);
}

TEST(TcpLink, AHugeFrameWithoutAReceiveIsLeftUnread) {
  RawPeer peer;
  Frame frame = data_frame();
  frame.plan = 9;
  frame.length = 1ull << 40;
  RawPeer::send(peer.data, encode(frame));
  Bytes in(1);
  const Transport::Op op = peer.transport->post_recv(1, {}, in);
  EXPECT_THROW(peer.transport->wait({&op, 1}, soon(20)), PeerLost);
}

TEST(TcpLink, AStreamThatEndsInsideAFrameIsALoss) {
  for (const std::size_t length : {0ul, 10ul, 76ul, 100ul}) {
    RawPeer peer;
    RawPeer::send(peer.data, std::span<const std::byte>(framed(data_frame(), Bytes(100))).first(length));
    peer.data = Fd();
    Bytes in(100);
    const auto error = peer.receive(in);
    EXPECT_EQ(origin_of(error), 1);
    EXPECT_NE(message_of(error).find("without a goodbye"), std::string::npos) << message_of(error);
  }
}

TEST(TcpLink, AnAbortNoticeNamesItsOrigin) {
  RawPeer peer;
  RawPeer::send(peer.data, notice(FrameKind::kAbort, 0));
  Bytes in(1);
  const auto error = peer.receive(in);
  EXPECT_EQ(origin_of(error), 0);
  EXPECT_EQ(message_of(error), "it is no more");
}

TEST(TcpLink, AnAbortNoticeAboutAnUnknownRankEndsTheLink) {
  RawPeer peer;
  RawPeer::send(peer.data, notice(FrameKind::kAbort, 2));
  Bytes in(1);
  const auto error = peer.receive(in);
  EXPECT_EQ(origin_of(error), 1);
  EXPECT_NE(message_of(error).find("a notice about rank 2, expected one below 2"), std::string::npos)
      << message_of(error);
}

TEST(TcpLink, AControlPeerThatSendsANoticeAboutAnUnknownRankIsLost) {
  for (const auto& [kind, about] :
       {std::pair{FrameKind::kAbort, 2}, std::pair{FrameKind::kSuspicion, 2}, std::pair{FrameKind::kSuspicion, -1}}) {
    RawPeer peer;
    RawPeer::send(peer.control_socket, notice(kind, about));
    const auto events = peer.control->wait(soon());
    ASSERT_EQ(events.size(), 1u) << about;
    EXPECT_EQ(events[0].kind, ControlEvent::Kind::kLost) << about;
    EXPECT_EQ(events[0].from, 1) << about;
  }
}

// A message is sent in part, because the peer does not read. No byte of its memory is sent after either abort returned.
TEST(TcpLink, AfterAnAbortTheMemoryOfOperationsIsNotUsed) {
  RawPeer peer;
  Bytes out(8 << 20, std::byte{7}), in(1);
  peer.transport->post_send(1, {}, out);
  RawPeer::send(peer.data, framed(data_frame(), in));
  ASSERT_EQ(message_of(peer.receive(in)), "");
  std::atomic<bool> returned = false;
  const auto abort = [&] {
    peer.transport->abort(0, "the end");
    if (returned.exchange(true)) return;
    std::fill(out.begin(), out.end(), std::byte{8});
    const Bytes sent = peer.read_to_end();
    ASSERT_GT(sent.size(), kFrameBytes);
    EXPECT_EQ(std::count(sent.begin() + kFrameBytes, sent.end(), std::byte{7}),
              static_cast<long>(sent.size() - kFrameBytes));
  };
  const auto errors = run_threads({abort, abort});
  for (const auto& error : errors) EXPECT_EQ(message_of(error), "");
}

TEST(TcpLink, AControlPeerThatSendsGarbageIsNamedAsLost) {
  RawPeer peer;
  RawPeer::send(peer.control_socket, Bytes(500, std::byte{1}));
  const auto events = peer.control->wait(soon());
  ASSERT_EQ(events.size(), 1u);
  EXPECT_EQ(events[0].kind, ControlEvent::Kind::kLost);
  EXPECT_EQ(events[0].from, 1);
}

// Frames with random fields and lengths, cut, joined and damaged: any outcome but a crash or a hang is right.
TEST(TcpLink, RandomFramesCauseNoCrashAndNoHang) {
  std::mt19937_64 random(21);
  for (int round = 0; round < 400; ++round) {
    RawPeer peer;
    Bytes stream;
    for (int i = 0; i < 6; ++i) {
      Frame frame = tcp_identity(1).frame(static_cast<FrameKind>(1 + random() % 5));
      frame.plan = random() % 3;
      frame.segment = random() % 4 == 0 ? 0xffffffff : static_cast<std::uint32_t>(random() % 3);
      frame.key_hash = random() % 2;
      const Bytes bytes = framed(frame, Bytes(random() % 3 == 0 ? 8 : random() % 300));
      stream.insert(stream.end(), bytes.begin(), bytes.end());
    }
    if (round % 3 == 0) stream[random() % stream.size()] ^= std::byte{4};
    if (round % 5 == 0) stream.resize(random() % stream.size());
    RawPeer::send(peer.data, stream);
    RawPeer::send(peer.control_socket, stream);
    peer.data = Fd();
    peer.control_socket = Fd();
    for (int i = 0; i < 3; ++i) {
      Bytes in(8);
      peer.receive(in);
    }
    EXPECT_FALSE(peer.control->wait(soon()).empty());
  }
}

}  // namespace
}  // namespace horo::test
