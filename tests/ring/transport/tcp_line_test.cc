// What depends on the kind of line: omitted checksums, and connections that are kept warm.
#include <gtest/gtest.h>
#include <poll.h>

#include "horo/base/error.h"
#include "ring/transport/factories.h"
#include "tests/ring/run_ranks.h"

namespace horo::test {
namespace {

using LineBytes = std::vector<std::byte>;

// A transport of rank 0 with a checked connection to rank 1, which is the test.
struct LinePeer {
  LinePeer() {
    int ends[2];
    if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, ends) != 0) raise_errno("socketpair");
    theirs = Fd(ends[0]);
    std::vector<Connection> connections;
    connections.push_back({Fd(ends[1]), 1, 0, Purpose::kData});
    connections.back().checks = true;
    Identity self;
    self.size = 2;
    transport = make_stream_transport(config_of(0, 2, ""), self, std::move(connections));
  }

  void send(FrameKind kind, std::span<const std::byte> payload) const {
    Frame frame;
    frame.kind = kind;
    frame.from = 1;
    const auto message = message_of(frame, payload);
    iovec part = as_iovec(message);
    send_some(theirs.get(), {&part, 1});
  }

  Frame send_and_read(std::size_t bytes) const {
    const LineBytes out(bytes);
    const Transport::Op op = transport->post_send(1, {}, out);
    transport->wait({&op, 1}, soon());
    LineBytes in(kFrameBytes + bytes + kChecksumBytes);
    iovec part = as_iovec(in);
    receive_some(theirs.get(), {&part, 1});
    return decode_frame(std::span(in).first<kFrameBytes>(), bytes);
  }

  Fd theirs;
  std::unique_ptr<Transport> transport;
};

TEST(TcpLine, MessagesAfterStopChecksumsCarryNone) {
  const LinePeer peer;
  EXPECT_TRUE(peer.send_and_read(100).is_checked);
  peer.transport->stop_checksums();
  EXPECT_FALSE(peer.send_and_read(100).is_checked);
}

// Each side decides about the messages that it sends.
TEST(TcpLine, AReceivedChecksumIsVerifiedAfterStopChecksums) {
  const LinePeer peer;
  peer.transport->stop_checksums();
  Frame frame;
  frame.from = 1;
  frame.is_checked = true;
  auto message = message_of(frame, LineBytes(40));
  message[kFrameBytes + 7] ^= std::byte{1};
  iovec part = as_iovec(message);
  send_some(peer.theirs.get(), {&part, 1});
  LineBytes in(40);
  const Transport::Op op = peer.transport->post_recv(1, {}, in);
  EXPECT_THROW(peer.transport->wait({&op, 1}, soon()), PeerLost);
}

TEST(TcpLine, BeatsBetweenMessagesAreIgnored) {
  const LinePeer peer;
  const LineBytes out(30, std::byte{7});
  for (int beat = 0; beat < 200; ++beat) peer.send(FrameKind::kBeat, {});
  peer.send(FrameKind::kData, out);
  peer.send(FrameKind::kBeat, {});
  LineBytes in(30);
  const Transport::Op op = peer.transport->post_recv(1, {}, in);
  peer.transport->wait({&op, 1}, soon());
  EXPECT_EQ(in, out);
  EXPECT_EQ(peer.transport->traffic(0).frames_received, 1u);
}

TEST(TcpLine, AShortLineIsNotKeptWarm) {
  run_ranks_well({.size = 2, .wire = Wire::kTcp, .config = {}}, [](Rank& rank) {
    rank.group->run([] {
      Collective barrier;
      barrier.kind = CollectiveKind::kBarrier;
      barrier.contributors = {0, 1};
      barrier.deadline = soon();
      return barrier;
    }());
    const std::uint64_t before = rank.transport().kernel_bytes_sent();
    EXPECT_EQ(rank.transport().tick(), TimePoint::max());
    EXPECT_EQ(rank.transport().kernel_bytes_sent(), before);
  });
}

}  // namespace
}  // namespace horo::test
