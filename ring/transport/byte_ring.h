// A ring of bytes in one direction, in memory that two ranks share: one writes, the other reads. Neither trusts the
// other: an invalid position is detected before it is used, and no memory outside of the ring is touched.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>

namespace horo {

// The control words of a ring, in shared memory, initially zero. Positions count bytes since the start. Each word has
// its own cache line.
struct RingWords {
  // Stored with seq_cst after the bytes before the position were copied: orders the copy before the store, and the
  // store before the load of the peer's sleep word.
  alignas(64) std::atomic<std::uint64_t> written;
  alignas(64) std::atomic<std::uint64_t> taken;
  // 1: the side sleeps and has to be woken. Stored with seq_cst before the last load of the peer's position, so that at
  // least one of the two sides sees the other's store.
  alignas(64) std::atomic<std::uint32_t> reader_sleeps;
  alignas(64) std::atomic<std::uint32_t> writer_sleeps;
};
static_assert(std::atomic<std::uint64_t>::is_always_lock_free && std::atomic<std::uint32_t>::is_always_lock_free);

// The common base of writer and reader. Each side may move bytes from its own position up to a limit: the peer's
// position for the reader, one ring length beyond it for the writer.
class RingEnd {
 public:
  // The peer has stored an invalid position. No byte is moved any more. Any thread.
  bool is_damaged() const { return is_damaged_.load(std::memory_order_relaxed); }
  void end_sleep() noexcept { sleeps_.store(0, std::memory_order_relaxed); }

 protected:
  struct Words {
    std::atomic<std::uint64_t>& own;
    std::atomic<std::uint64_t>& peer;
    std::atomic<std::uint32_t>& own_sleeps;
    std::atomic<std::uint32_t>& peer_sleeps;
  };

  // `lead`: how far the limit is beyond the peer's position. `chunk_bytes`: the position is stored after this many
  // bytes at the latest, so that the peer can work while the rest is copied.
  RingEnd(const Words& words, std::size_t ring_bytes, std::size_t lead, std::size_t chunk_bytes)
      : own_(words.own),
        peer_(words.peer),
        sleeps_(words.own_sleeps),
        peer_sleeps_(words.peer_sleeps),
        ring_bytes_(ring_bytes),
        lead_(lead),
        chunk_bytes_(chunk_bytes),
        limit_(lead) {}

  std::size_t available() const { return static_cast<std::size_t>(limit_ - position_); }
  // Moves up to `bytes`: calls copy(offset in the ring, offset in the caller's memory, length) for each part. Loads the
  // peer's position when less than `least` is available. Returns the number of bytes.
  template <class Copy>
  std::size_t move(std::size_t bytes, std::size_t least, const Copy& copy) noexcept;
  // Whether `bytes` are available, or the ring is damaged; loads the peer's position if it seems not so.
  bool has(std::size_t bytes) noexcept;
  bool prepare_sleep(std::size_t bytes) noexcept;
  void store_position() noexcept;
  // Returns whether the peer sleeps, once per sleep; the caller must then wake the peer.
  bool take_wake_up() noexcept;
  std::size_t ring_bytes() const { return ring_bytes_; }
  std::size_t chunk_bytes() const { return chunk_bytes_; }

 private:
  void load_limit() noexcept;

  std::atomic<std::uint64_t>& own_;
  std::atomic<std::uint64_t>& peer_;
  std::atomic<std::uint32_t>& sleeps_;
  std::atomic<std::uint32_t>& peer_sleeps_;
  const std::size_t ring_bytes_, lead_, chunk_bytes_;
  std::uint64_t position_ = 0;
  std::uint64_t stored_ = 0;              // the position that the peer sees
  std::uint64_t limit_;                   // by the peer's position when it was last loaded
  std::atomic<bool> is_damaged_ = false;  // orders nothing; the thread of the other direction may read it
};

class RingWriter : public RingEnd {
 public:
  RingWriter(RingWords& words, std::span<std::byte> ring, std::size_t chunk_bytes)
      : RingEnd({words.written, words.taken, words.writer_sleeps, words.reader_sleeps}, ring.size(), ring.size(),
                chunk_bytes),
        ring_(ring) {}

  // Copies as much as there is room for. The reader sees all of it after publish(), which returns whether to wake the
  // reader.
  std::size_t write(std::span<const std::byte> from) noexcept;
  bool publish() noexcept;
  // Before a sleep: false if there is too little room, and the reader will wake the writer when half the ring is free.
  bool prepare_sleep() noexcept { return RingEnd::prepare_sleep(ring_bytes() / 2); }
  bool has_room() noexcept { return has(ring_bytes() / 2); }

 private:
  std::span<std::byte> ring_;
};

class RingReader : public RingEnd {
 public:
  RingReader(RingWords& words, std::span<const std::byte> ring, std::size_t chunk_bytes)
      : RingEnd({words.taken, words.written, words.reader_sleeps, words.writer_sleeps}, ring.size(), 0, chunk_bytes),
        ring_(ring) {}

  // Copies the bytes that are there. The writer sees their room after publish(), which returns whether to wake the
  // writer.
  std::size_t read(std::span<std::byte> into) noexcept;
  bool publish() noexcept;
  // Before a sleep: false if there are no bytes, and the writer will wake the reader.
  bool prepare_sleep() noexcept { return RingEnd::prepare_sleep(1); }
  bool has_bytes() noexcept { return has(1); }

 private:
  std::span<const std::byte> ring_;
};

}  // namespace horo
