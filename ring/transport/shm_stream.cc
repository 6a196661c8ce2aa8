// Two rings in one segment, one for each direction, and the Unix socket over which the segment was handed over. A byte
// on the socket wakes the peer, so that one poll() sleeps for peers in shared memory and peers behind a network; the
// end of the socket is the end of the peer. The peer's last bytes are read before its end is reported.
#include <array>
#include <atomic>
#include <cerrno>
#include <new>

#include "ring/transport/byte_ring.h"
#include "ring/transport/stream.h"

namespace horo {
namespace {

constexpr std::size_t kWordsBytes = 2 * sizeof(RingWords);

class ShmStream final : public Stream {
 public:
  ShmStream(Fd socket, ShmSegment segment, bool is_maker, std::size_t chunk_bytes)
      : socket_(std::move(socket)),
        segment_(std::move(segment)),
        writer_(words(is_maker ? 0 : 1), ring(is_maker ? 0 : 1), chunk_bytes),
        reader_(words(is_maker ? 1 : 0), ring(is_maker ? 1 : 0), chunk_bytes) {}

  Moved receive(std::span<iovec> into) noexcept override {
    std::size_t got = 0;
    for (const iovec& part : into) {
      const std::size_t here = reader_.read({static_cast<std::byte*>(part.iov_base), part.iov_len});
      got += here;
      if (here < part.iov_len) break;
    }
    if (reader_.publish()) wake_peer();
    if (is_damaged()) return {got, true, EPROTO};
    return {got, got == 0 && closed_, 0};
  }

  Moved send(std::span<iovec> from) noexcept override {
    if (closed_ || is_damaged()) return {0, true, closed_ ? EPIPE : EPROTO};
    std::size_t sent = 0;
    for (const iovec& part : from) {
      const std::size_t here = writer_.write({static_cast<const std::byte*>(part.iov_base), part.iov_len});
      sent += here;
      if (here < part.iov_len) break;
    }
    if (writer_.publish()) wake_peer();
    return {sent, is_damaged(), is_damaged() ? EPROTO : 0};
  }

  void end_sending() noexcept override { ::shutdown(socket_.get(), SHUT_WR); }
  bool is_delivered() const noexcept override { return true; }

  pollfd before_sleep(short wanted) noexcept override {
    wanted_ = wanted;
    const bool has_bytes = (wanted & POLLIN) != 0 && reader_.prepare_sleep();
    const bool has_room = (wanted & POLLOUT) != 0 && writer_.prepare_sleep();
    const bool is_ready = has_bytes || has_room || (closed_ && wanted != 0);
    return {closed_ ? -1 : socket_.get(), POLLIN, static_cast<short>(is_ready ? POLLIN : 0)};
  }

  short after_sleep(short revents) noexcept override {
    reader_.end_sleep();
    writer_.end_sleep();
    if (revents != 0 && !closed_) read_socket();
    const bool has_bytes = reader_.has_bytes();
    const bool has_ended = closed_ && !has_bytes;
    const bool has_room = (wanted_ & POLLOUT) != 0 && (closed_ || writer_.has_room());
    const int in = has_bytes || has_ended ? wanted_ & POLLIN : 0;
    return static_cast<short>(in | (has_room ? POLLOUT : 0) | (has_ended ? POLLHUP : 0));
  }

  int socket() const override { return socket_.get(); }
  bool is_memory() const override { return true; }

 private:
  RingWords& words(std::size_t which) const {
    return *std::launder(reinterpret_cast<RingWords*>(segment_.memory().data() + which * sizeof(RingWords)));
  }
  std::span<std::byte> ring(std::size_t which) const {
    const std::size_t bytes = (segment_.memory().size() - kWordsBytes) / 2;
    return segment_.memory().subspan(kWordsBytes + which * bytes, bytes);
  }
  bool is_damaged() const { return reader_.is_damaged() || writer_.is_damaged(); }

  void wake_peer() noexcept {
    const std::byte byte{1};
    iovec part = as_iovec({&byte, 1});
    send_some(socket_.get(), {&part, 1});
  }

  void read_socket() noexcept {
    std::array<std::byte, 64> bytes;
    iovec part = as_iovec(bytes);
    closed_ = receive_some(socket_.get(), {&part, 1}).ended;
  }

  Fd socket_;
  ShmSegment segment_;
  RingWriter writer_;
  RingReader reader_;
  short wanted_ = 0;
  // The peer has closed the socket. Set before the ring is read again, so that its last bytes are found. Atomic because
  // send() may run in another thread.
  std::atomic<bool> closed_ = false;
};

}  // namespace

std::unique_ptr<Stream> make_shm_stream(Fd socket, ShmSegment segment, bool is_maker, std::size_t chunk_bytes) {
  return std::make_unique<ShmStream>(std::move(socket), std::move(segment), is_maker, chunk_bytes);
}

std::size_t shm_stream_bytes(std::size_t ring_bytes) {
  return kWordsBytes + 2 * ring_bytes;
}

}  // namespace horo
