// A stream that MPI carries, as messages of up to kChunkBytes, out of slots of its own and into others. The socket that
// the two ranks have stays for the end: a peer's last words come there, behind the number of bytes that went through
// MPI before them and may arrive later; and its end is the peer's end. So who leaves waits for nobody to call his MPI.
//
// Sends are synchronous ones: they have ended when the receiver has taken the message up. So nothing is left behind in
// an MPI that nobody calls any more, and a peer that does not read is not sent more than there are slots.
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

constexpr std::size_t kChunkBytes = 132 << 10;  // two for a segment of 256 KiB with its frame
constexpr std::size_t kSlots = 4;               // in each direction
constexpr std::size_t kMostLastBytes = 64 << 10;
constexpr std::chrono::milliseconds kLingering{200};

// One message. Slots are counted on for ever; number n is in place n mod kSlots.
struct MpiSlot {
  MpiMemory memory;
  MpiRequest request = nullptr;
  std::size_t bytes = 0;
  std::size_t read = 0;  // of them
};

// What both directions have: slots, made when they are first needed, and the first error of MPI.
class MpiSlots {
 public:
  MpiSlots(std::shared_ptr<MpiWorld> world, int peer) : world_(std::move(world)), peer_(peer) {}

  int error() const { return error_; }

  // MPI can take a receive back; a send that its peer never took up it keeps.
  void end(bool receives) noexcept {
    for (MpiSlot& slot : slots_) {
      if (slot.request != nullptr && receives) world_->api().cancel(&slot.request);
      if (!is_done(slot)) world_->keep(std::move(slot.memory));
    }
  }

 protected:
  void make() {
    if (!slots_.empty()) return;
    std::vector<MpiSlot> slots(kSlots);
    for (MpiSlot& slot : slots) slot.memory = world_->take_memory(kChunkBytes);
    slots_ = std::move(slots);
  }
  MpiSlot& at(std::size_t number) { return slots_[number % kSlots]; }

  // The rank that has it posted looks whether it has ended.
  bool is_done(MpiSlot& slot, int* bytes = nullptr) noexcept {
    if (slot.request == nullptr) return true;
    bool done = false;
    int count = 0;
    heed(world_->api().test(&slot.request, &done, bytes == nullptr ? &count : bytes));
    return done;
  }

  void heed(int error) noexcept {
    if (error == 0 || std::exchange(error_, EIO) != 0) return;
    try {
      log_warning(say("MPI says of messages to and from rank ", peer_, ": ", world_->text_of(error)));
    } catch (const std::bad_alloc&) {
      return;
    }
  }

  const std::shared_ptr<MpiWorld> world_;
  const int peer_;
  std::vector<MpiSlot> slots_;
  int error_ = 0;
};

class MpiWriter : public MpiSlots {
 public:
  using MpiSlots::MpiSlots;

  std::uint64_t sent() const { return sent_; }

  // As much as there are slots for.
  std::size_t write(std::span<const std::byte> from) {
    make();
    std::size_t taken = 0;
    while (taken < from.size() && error_ == 0 && has_slot()) {
      const std::size_t here = std::min(from.size() - taken, kChunkBytes - filled_);
      std::memcpy(at(next_).memory.get() + filled_, from.data() + taken, here);
      taken += here;
      filled_ += here;
      if (filled_ == kChunkBytes) pass_on();
    }
    sent_ += taken;
    return taken;
  }

  void pass_on() noexcept {
    if (filled_ == 0) return;
    MpiSlot& slot = at(next_++);
    slot.bytes = std::exchange(filled_, 0);
    heed(world_->api().send(world_->comm(), peer_, slot.memory.get(), static_cast<int>(slot.bytes), &slot.request));
  }

  bool is_settled() const { return settled_ == sent_; }
  std::uint64_t unsettled() noexcept {
    while (oldest_ != next_ && is_done(at(oldest_))) settled_ += at(oldest_++).bytes;
    return sent_ - settled_;
  }

 private:
  bool has_slot() noexcept {
    if (next_ - oldest_ == kSlots) unsettled();
    return next_ - oldest_ < kSlots;
  }

  std::size_t oldest_ = 0;  // that has not ended
  std::size_t next_ = 0;    // to be sent
  std::size_t filled_ = 0;  // of it
  std::uint64_t sent_ = 0;
  std::uint64_t settled_ = 0;
};

class MpiReader : public MpiSlots {
 public:
  using MpiSlots::MpiSlots;

  // All receives are posted when something is first sent or expected: who is sent something may answer that a plan is
  // cancelled, though nothing of his is waited for.
  void listen() {
    if (!slots_.empty()) return;
    make();
    for (MpiSlot& slot : slots_) post(slot);
  }

  std::uint64_t received() const { return received_; }
  bool listens() const { return !slots_.empty(); }

  std::size_t read(std::span<std::byte> into) {
    listen();
    std::size_t got = 0;
    while (got < into.size() && error_ == 0) {
      MpiSlot& slot = at(next_);
      if (!has_come(slot)) break;
      const std::size_t here = std::min(into.size() - got, slot.bytes - slot.read);
      std::memcpy(into.data() + got, slot.memory.get() + slot.read, here);
      got += here;
      slot.read += here;
      if (slot.read < slot.bytes) break;
      post(slot);
      ++next_;
    }
    received_ += got;
    return got;
  }

 private:
  void post(MpiSlot& slot) noexcept {
    slot.read = slot.bytes = 0;
    heed(world_->api().receive(world_->comm(), peer_, slot.memory.get(), kChunkBytes, &slot.request));
  }

  bool has_come(MpiSlot& slot) noexcept {
    if (slot.request == nullptr) return true;
    int bytes = 0;
    if (!is_done(slot, &bytes)) return false;
    slot.bytes = static_cast<std::size_t>(bytes);
    return true;
  }

  std::size_t next_ = 0;  // to be read
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
      reader_.listen();
      for (const iovec& part : from) {
        const std::size_t here = closed_ ? 0 : writer_.write({static_cast<std::byte*>(part.iov_base), part.iov_len});
        sent += here;
        if (here < part.iov_len) break;
      }
      writer_.pass_on();
    } catch (const std::bad_alloc&) {
      error_ = ENOMEM;
    }
    if (error() != 0) return {sent, true, error()};
    return {sent, closed_, closed_ ? EPIPE : 0};
  }

  std::uint64_t unsettled() noexcept override { return writer_.unsettled(); }

  // Behind the number of bytes that came before them.
  Moved send_last(std::span<iovec> from) noexcept override {
    const Moved moved = say_number();
    return moved.ended || said_ < sizeof(std::uint64_t) ? moved : send_some(socket_.get(), from);
  }

  void end_sending() noexcept override {
    say_number();
    ::shutdown(socket_.get(), SHUT_WR);
  }

  bool is_delivered() const noexcept override { return writer_.is_settled(); }

  // MPI has nothing to sleep at: the transport looks again after a nap.
  pollfd before_sleep(short wanted) noexcept override {
    wanted_ = wanted;
    return {closed_ ? -1 : socket_.get(), POLLIN, 0};
  }

  short after_sleep(short revents) noexcept override {
    if (revents != 0 && !closed_) hear_peer();
    const bool is_over = has_ended() || error() != 0;
    const bool may_have_bytes = reader_.listens() || knows_number();
    return static_cast<short>((may_have_bytes || is_over ? wanted_ & POLLIN : 0) | (is_over ? POLLHUP : 0));
  }

  int socket() const override { return socket_.get(); }
  bool is_memory() const override { return false; }
  bool needs_looks() const override { return true; }

 private:
  int error() const { return error_ != 0 ? error_ : reader_.error() != 0 ? reader_.error() : writer_.error(); }

  std::size_t read(std::span<std::byte> into) {
    const std::size_t got = reader_.read(into);
    if (got == into.size() || !has_last_words()) return got;
    const std::size_t here = std::min(into.size() - got, last_.size() - last_read_);
    std::memcpy(into.data() + got, last_.data() + last_read_, here);
    last_read_ += here;
    return got + here;
  }

  Moved say_number() noexcept {
    const std::uint64_t number = writer_.sent();
    iovec part = as_iovec(std::as_bytes(std::span(&number, 1)).subspan(said_));
    const Moved moved = part.iov_len == 0 ? Moved() : send_some(socket_.get(), {&part, 1});
    said_ += moved.bytes;
    return {0, moved.ended, moved.error};
  }

  void hear_peer() noexcept {
    std::array<std::byte, 4096> more;
    iovec part = as_iovec(more);
    const Moved moved = receive_some(socket_.get(), {&part, 1});
    closed_ = moved.ended;
    if (last_.empty() || closed_) heard_at_ = Clock::now();
    try {
      last_.insert(last_.end(), more.begin(), more.begin() + static_cast<std::ptrdiff_t>(moved.bytes));
    } catch (const std::bad_alloc&) {
      error_ = ENOMEM;
    }
    if (last_.size() > kMostLastBytes) error_ = EPROTO;
  }

  bool knows_number() const { return last_.size() >= sizeof(std::uint64_t); }
  bool has_all() const {
    std::uint64_t number = 0;
    if (knows_number()) std::memcpy(&number, last_.data(), sizeof(number));
    return knows_number() && reader_.received() >= number;
  }
  // What the peer took up before its end may still have to be learnt from MPI, which is not as fast as the socket; and
  // the transport has to hear of that first, which asks for unsettled().
  bool lingers() const { return !writer_.is_settled() && Clock::now() < heard_at_ + kLingering; }
  bool has_last_words() const { return has_all() && last_read_ < last_.size() && !lingers(); }
  // Of who died nothing more is waited for.
  bool has_ended() const {
    const bool has_died = !knows_number();
    return closed_ && !lingers() && (has_died || (has_all() && last_read_ == last_.size()));
  }

  Fd socket_;
  MpiWriter writer_;
  MpiReader reader_;
  int error_ = 0;
  short wanted_ = 0;
  std::size_t said_ = 0;  // of the number of bytes
  // From the socket: the number, and last words; `last_read_` begins behind the number.
  std::vector<std::byte> last_;
  std::size_t last_read_ = sizeof(std::uint64_t);
  bool closed_ = false;  // by the peer
  TimePoint heard_at_;
};

}  // namespace

std::unique_ptr<Stream> make_mpi_stream(Fd socket, const std::shared_ptr<MpiWorld>& world, int peer) {
  return std::make_unique<MpiStream>(std::move(socket), world, peer);
}

}  // namespace horo
