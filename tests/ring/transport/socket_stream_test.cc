// How a socket stream divides bytes among send calls.
#include <gtest/gtest.h>
#include <poll.h>

#include <algorithm>
#include <array>
#include <vector>

#include "ring/transport/stream.h"

namespace horo::test {
namespace {

using StreamBytes = std::vector<std::byte>;

// Two ends of a connection of the loopback interface.
struct LoopbackStreams {
  LoopbackStreams() {
    const Fd listener = listen_at(resolve("127.0.0.1:0", "test").front());
    Fd ours = dial(local_address(listener.get()));
    pollfd waiting{listener.get(), POLLIN, 0};
    ::poll(&waiting, 1, -1);
    Fd theirs = accept_at(listener.get());
    packet_fd = ours.get();
    from = make_socket_stream(std::move(ours));
    to = make_socket_stream(std::move(theirs));
  }

  // Sends the bytes as the transport does, and returns how many each call took.
  std::vector<std::size_t> send_all(const StreamBytes& out, std::size_t front) const {
    std::vector<std::size_t> calls;
    StreamBytes in(out.size());
    for (std::size_t sent = 0, received = 0; received < in.size();) {
      const std::size_t end_of_front = std::max(sent, front);
      std::array<iovec, 2> parts{as_iovec(std::span(out).subspan(sent, end_of_front - sent)),
                                 as_iovec(std::span(out).subspan(end_of_front))};
      const Moved moved = from->send(sent < front ? std::span(parts) : std::span(parts).last(1));
      if (moved.bytes > 0) calls.push_back(moved.bytes);
      sent += moved.bytes;
      iovec rest = as_iovec(std::span(in).subspan(received));
      received += to->receive({&rest, 1}).bytes;
    }
    EXPECT_EQ(in, out);
    return calls;
  }

  int packet_fd = -1;
  std::unique_ptr<Stream> from, to;
};

StreamBytes numbered(std::size_t count) {
  StreamBytes bytes(count);
  for (std::size_t i = 0; i < count; ++i) bytes[i] = static_cast<std::byte>(i * 7 + i / 251);
  return bytes;
}

// The size of a packet grows with the window of the receiver, which grows with the bytes that it reads. A stream reads
// the size only after a number of sends, so this returns when the size has not changed for a while.
std::size_t packet_after_warming(const LoopbackStreams& streams) {
  std::size_t packet = 0;
  do {
    packet = packet_bytes(streams.packet_fd);
    for (int i = 0; i < 100; ++i) streams.send_all(numbered(64 << 10), 76);
  } while (packet_bytes(streams.packet_fd) != packet);
  return packet;
}

TEST(SocketStream, APacketAndAPartOfAnotherTakeTwoCallsTheShortOneFirst) {
  const LoopbackStreams streams;
  const std::size_t packet = packet_after_warming(streams);
  ASSERT_GT(packet, 32u << 10) << "has the loopback interface a small MTU?";
  for (const std::size_t more : {std::size_t{1}, std::size_t{76}, std::size_t{100}, packet / 2, packet - 1}) {
    const auto calls = streams.send_all(numbered(packet + more), 76);
    ASSERT_GE(calls.size(), 2u) << more;
    EXPECT_EQ(calls[0], more);
  }
}

TEST(SocketStream, BytesUpToOnePacketTakeOneCall) {
  const LoopbackStreams streams;
  const std::size_t packet = packet_after_warming(streams);
  for (const std::size_t bytes : {std::size_t{1}, std::size_t{100}, packet / 2, packet}) {
    EXPECT_EQ(streams.send_all(numbered(bytes), std::min<std::size_t>(bytes - 1, 76)).size(), 1u) << bytes;
  }
}

TEST(SocketStream, AnyNumberOfBytesArrivesInOrder) {
  const LoopbackStreams streams;
  for (std::size_t bytes = 30'000; bytes < 300'000; bytes += 4'999) {
    for (const std::size_t front : {0, 1, 76, 20'000}) streams.send_all(numbered(bytes), front);
  }
}

TEST(SocketStream, AUnixSocketTakesAllBytesAtOnce) {
  int ends[2];
  ASSERT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, ends), 0);
  const Fd theirs(ends[1]);
  const auto stream = make_socket_stream(Fd(ends[0]));
  const StreamBytes out(66'000);
  iovec part = as_iovec(out);
  EXPECT_EQ(stream->send({&part, 1}).bytes, out.size());
}

}  // namespace
}  // namespace horo::test
