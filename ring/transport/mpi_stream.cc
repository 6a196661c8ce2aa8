// A stream over MPI: messages of up to kChunkBytes, copied into and out of buffers of the stream. The socket between
// the two ranks carries the last bytes of the stream (send_last) and the end of the peer. In front of the last bytes it
// carries the number of bytes that were sent through MPI before, because those may arrive later. So a rank that leaves
// does not wait until its peer calls MPI.
//
// Sends are synchronous: they end when the receiver has matched the message. So no message is left in an MPI that its
// rank does not call any more, and no more messages are in flight than there are buffers. More or larger messages in
// flight do not gain. Huge pages do: MPI reads the memory of the other process through the kernel, which pins each
// page, and with two ranks 1 MiB rises from 0.62 to 1.0 of Open MPI's own speed.
#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <vector>

#include "horo/base/log.h"
#include "horo/base/say.h"
#include "horo/base/time.h"
#include "ring/mpi/mpi_world.h"
#include "ring/transport/stream.h"

namespace horo {
namespace {

constexpr std::size_t kChunkBytes = 132 << 10;  // two hold a segment of 256 KiB with its frame
constexpr std::size_t kBuffers = 4;             // in each direction
constexpr std::size_t kMostLastBytes = 64 << 10;
constexpr std::chrono::milliseconds kLingering{200};

// The buffer of one message. Message number n of a direction uses buffer n mod kBuffers.
struct MpiBuffer {
  MpiMemory memory;
  MpiRequest request = nullptr;
  std::size_t bytes = 0;
  std::size_t read = 0;  // of those bytes
};

// The common part of both directions: buffers, allocated at the first use, and the first error of MPI.
class MpiBuffers {
 public:
  MpiBuffers(std::shared_ptr<MpiWorld> world, int peer) : world_(std::move(world)), peer_(peer) {}

  int error() const { return error_; }

  // MPI can cancel a receive. The memory of a send that its peer never matched is kept for ever.
  void end(bool receives) noexcept {
    for (MpiBuffer& buffer : buffers_) {
      if (buffer.request != nullptr && receives) world_->api().cancel(&buffer.request);
      if (!is_done(buffer)) world_->keep(std::move(buffer.memory));
    }
  }

 protected:
  void make() {
    if (!buffers_.empty()) return;
    std::vector<MpiBuffer> buffers(kBuffers);
    for (MpiBuffer& buffer : buffers) buffer.memory = world_->take_memory(kChunkBytes);
    buffers_ = std::move(buffers);
  }
  MpiBuffer& at(std::size_t number) { return buffers_[number % kBuffers]; }

  // Whether the message of the buffer has ended; a buffer without a message counts as ended.
  bool is_done(MpiBuffer& buffer, int* bytes = nullptr) noexcept {
    if (buffer.request == nullptr) return true;
    bool done = false;
    int count = 0;
    note_error(world_->api().test(&buffer.request, &done, bytes == nullptr ? &count : bytes));
    return done;
  }

  void note_error(int error) noexcept {
    if (error == 0 || std::exchange(error_, EIO) != 0) return;
    try {
      log_warning(say("MPI reports for messages to and from rank ", peer_, ": ", world_->text_of(error)));
    } catch (const std::bad_alloc&) {
      return;
    }
  }

  const std::shared_ptr<MpiWorld> world_;
  const int peer_;
  std::vector<MpiBuffer> buffers_;
  int error_ = 0;
};

class MpiWriter : public MpiBuffers {
 public:
  using MpiBuffers::MpiBuffers;

  std::uint64_t sent() const { return sent_; }

  // Copies as much as there are free buffers for.
  std::size_t write(std::span<const std::byte> from) {
    make();
    std::size_t taken = 0;
    while (taken < from.size() && error_ == 0 && has_buffer()) {
      const std::size_t here = std::min(from.size() - taken, kChunkBytes - filled_);
      std::memcpy(at(next_).memory.get() + filled_, from.data() + taken, here);
      taken += here;
      filled_ += here;
      if (filled_ == kChunkBytes) send_filled();
    }
    sent_ += taken;
    return taken;
  }

  void send_filled() noexcept {
    if (filled_ == 0) return;
    MpiBuffer& buffer = at(next_++);
    buffer.bytes = std::exchange(filled_, 0);
    note_error(world_->api().send(world_->comm(), peer_, buffer.memory.get(), static_cast<int>(buffer.bytes),
                                  &buffer.request));
  }

  bool is_settled() const { return settled_ == sent_; }
  std::uint64_t unsettled() noexcept {
    while (oldest_ != next_ && is_done(at(oldest_))) settled_ += at(oldest_++).bytes;
    return sent_ - settled_;
  }

 private:
  bool has_buffer() noexcept {
    if (next_ - oldest_ == kBuffers) unsettled();
    return next_ - oldest_ < kBuffers;
  }

  std::size_t oldest_ = 0;  // number of the oldest message that has not ended
  std::size_t next_ = 0;    // number of the next message
  std::size_t filled_ = 0;  // bytes of it
  std::uint64_t sent_ = 0;
  std::uint64_t settled_ = 0;
};

class MpiReader : public MpiBuffers {
 public:
  using MpiBuffers::MpiBuffers;

  // All receives are posted when bytes are first sent or expected, because a peer that gets a message may answer with
  // the cancellation of its plan.
  void post_all() {
    if (!buffers_.empty()) return;
    make();
    for (MpiBuffer& buffer : buffers_) post(buffer);
  }

  std::uint64_t received() const { return received_; }
  bool has_posted() const { return !buffers_.empty(); }

  std::size_t read(std::span<std::byte> into) {
    post_all();
    std::size_t got = 0;
    while (got < into.size() && error_ == 0) {
      MpiBuffer& buffer = at(next_);
      if (!has_arrived(buffer)) break;
      const std::size_t here = std::min(into.size() - got, buffer.bytes - buffer.read);
      std::memcpy(into.data() + got, buffer.memory.get() + buffer.read, here);
      got += here;
      buffer.read += here;
      if (buffer.read < buffer.bytes) break;
      post(buffer);
      ++next_;
    }
    received_ += got;
    return got;
  }

 private:
  void post(MpiBuffer& buffer) noexcept {
    buffer.read = buffer.bytes = 0;
    note_error(world_->api().receive(world_->comm(), peer_, buffer.memory.get(), kChunkBytes, &buffer.request));
  }

  bool has_arrived(MpiBuffer& buffer) noexcept {
    if (buffer.request == nullptr) return true;
    int bytes = 0;
    if (!is_done(buffer, &bytes)) return false;
    buffer.bytes = static_cast<std::size_t>(bytes);
    return true;
  }

  std::size_t next_ = 0;  // number of the message that is read next
  std::uint64_t received_ = 0;
};

class MpiStream final : public Stream {
 public:
  MpiStream(Fd socket, const std::shared_ptr<MpiWorld>& world, int peer)
      : socket_(std::move(socket)), writer_(world, peer), reader_(world, peer) {}
  ~MpiStream() override {
    reader_.end(true);
    writer_.end(false);
  }

  Moved receive(std::span<iovec> into) noexcept override {
    std::size_t got = 0;
    try {
      for (const iovec& part : into) {
        const std::size_t here = read({static_cast<std::byte*>(part.iov_base), part.iov_len});
        got += here;
        if (here < part.iov_len) break;
      }
    } catch (const std::bad_alloc&) {
      error_ = ENOMEM;
    }
    if (got > 0) return {got, false, 0};
    return {0, error() != 0 || has_ended(), error()};
  }

  Moved send(std::span<iovec> from) noexcept override {
    std::size_t sent = 0;
    try {
      reader_.post_all();
      for (const iovec& part : from) {
        const std::size_t here = closed_ ? 0 : writer_.write({static_cast<std::byte*>(part.iov_base), part.iov_len});
        sent += here;
        if (here < part.iov_len) break;
      }
      writer_.send_filled();
    } catch (const std::bad_alloc&) {
      error_ = ENOMEM;
    }
    if (error() != 0) return {sent, true, error()};
    return {sent, closed_, closed_ ? EPIPE : 0};
  }

  std::uint64_t unsettled() noexcept override { return writer_.unsettled(); }

  // Behind the number of bytes that were sent through MPI.
  Moved send_last(std::span<iovec> from) noexcept override {
    const Moved moved = send_count();
    return moved.ended || count_sent_ < sizeof(std::uint64_t) ? moved : send_some(socket_.get(), from);
  }

  void end_sending() noexcept override {
    send_count();
    ::shutdown(socket_.get(), SHUT_WR);
  }

  bool is_delivered() const noexcept override { return writer_.is_settled(); }

  // MPI gives no descriptor to poll: the transport sleeps for a short time and tries again.
  pollfd before_sleep(short wanted) noexcept override {
    wanted_ = wanted;
    return {closed_ ? -1 : socket_.get(), POLLIN, 0};
  }

  short after_sleep(short revents) noexcept override {
    if (revents != 0 && !closed_) read_socket();
    const bool is_ended = has_ended() || error() != 0;
    const bool may_have_bytes = reader_.has_posted() || has_count();
    return static_cast<short>((may_have_bytes || is_ended ? wanted_ & POLLIN : 0) | (is_ended ? POLLHUP : 0));
  }

  int socket() const override { return socket_.get(); }
  bool is_memory() const override { return false; }

 private:
  int error() const { return error_ != 0 ? error_ : reader_.error() != 0 ? reader_.error() : writer_.error(); }

  std::size_t read(std::span<std::byte> into) {
    const std::size_t got = reader_.read(into);
    if (got == into.size() || !has_last_bytes()) return got;
    const std::size_t here = std::min(into.size() - got, last_.size() - last_read_);
    std::memcpy(into.data() + got, last_.data() + last_read_, here);
    last_read_ += here;
    return got + here;
  }

  Moved send_count() noexcept {
    const std::uint64_t count = writer_.sent();
    iovec part = as_iovec(std::as_bytes(std::span(&count, 1)).subspan(count_sent_));
    const Moved moved = part.iov_len == 0 ? Moved() : send_some(socket_.get(), {&part, 1});
    count_sent_ += moved.bytes;
    return {0, moved.ended, moved.error};
  }

  void read_socket() noexcept {
    std::array<std::byte, 4096> more;
    iovec part = as_iovec(more);
    const Moved moved = receive_some(socket_.get(), {&part, 1});
    closed_ = moved.ended;
    if (last_.empty() || closed_) socket_read_at_ = Clock::now();
    try {
      last_.insert(last_.end(), more.begin(), more.begin() + static_cast<std::ptrdiff_t>(moved.bytes));
    } catch (const std::bad_alloc&) {
      error_ = ENOMEM;
    }
    if (last_.size() > kMostLastBytes) error_ = EPROTO;
  }

  bool has_count() const { return last_.size() >= sizeof(std::uint64_t); }
  bool has_all() const {
    std::uint64_t count = 0;
    if (has_count()) std::memcpy(&count, last_.data(), sizeof(count));
    return has_count() && reader_.received() >= count;
  }
  // The peer may have matched sends before its end, and MPI may report that later than the socket reports the end. The
  // transport, which asks for unsettled(), has to get that first.
  bool lingers() const { return !writer_.is_settled() && Clock::now() < socket_read_at_ + kLingering; }
  bool has_last_bytes() const { return has_all() && last_read_ < last_.size() && !lingers(); }
  // A peer that died has sent no count, and no more bytes are waited for.
  bool has_ended() const {
    const bool has_died = !has_count();
    return closed_ && !lingers() && (has_died || (has_all() && last_read_ == last_.size()));
  }

  Fd socket_;
  MpiWriter writer_;
  MpiReader reader_;
  int error_ = 0;
  short wanted_ = 0;
  std::size_t count_sent_ = 0;  // bytes of the count
  // The bytes of the socket: the count, then the last bytes of the stream. `last_read_` begins behind the count.
  std::vector<std::byte> last_;
  std::size_t last_read_ = sizeof(std::uint64_t);
  bool closed_ = false;  // by the peer
  TimePoint socket_read_at_;
};

}  // namespace

std::unique_ptr<Stream> make_mpi_stream(Fd socket, const std::shared_ptr<MpiWorld>& world, int peer) {
  return std::make_unique<MpiStream>(std::move(socket), world, peer);
}

}  // namespace horo
