// A stream of bytes in one direction through memory that two ranks share: one of them writes, the other reads. Neither
// believes the other: a position that cannot be is found before it is used, and nothing outside the ring is touched.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>

namespace horo {

// In shared memory, zero at first. Positions count bytes since the beginning. Each word has a cache line of its own.
struct RingWords {
  // Stored with seq_cst after the bytes up to it: orders these before, and itself before a look at the other's wish.
  alignas(64) std::atomic<std::uint64_t> written;
  alignas(64) std::atomic<std::uint64_t> taken;
  // "I sleep; wake me": set with seq_cst before a last look at the other's position, so that one of the two sees.
  alignas(64) std::atomic<std::uint32_t> reader_sleeps;
  alignas(64) std::atomic<std::uint32_t> writer_sleeps;
};
static_assert(std::atomic<std::uint64_t>::is_always_lock_free && std::atomic<std::uint32_t>::is_always_lock_free);

// Both: `chunk_bytes` is how much is passed on at a time while the rest is copied. Once is_damaged(), nothing moves.
class RingWriter {
 public:
  RingWriter(RingWords& words, std::span<std::byte> ring, std::size_t chunk_bytes)
      : words_(words), ring_(ring), chunk_bytes_(chunk_bytes) {}

  // Copies what there is room for; the last of it becomes visible with pass_on(), which says whether to wake the
  // reader.
  std::size_t write(std::span<const std::byte> from) noexcept;
  bool pass_on() noexcept;
  // True if there is room enough to be woken for; else the reader wakes us when there is.
  bool prepare_sleep() noexcept;
  bool has_room() noexcept;
  void end_sleep() noexcept { words_.writer_sleeps.store(0, std::memory_order_relaxed); }
  bool is_damaged() const { return damaged_.load(std::memory_order_relaxed); }

 private:
  std::size_t room() const { return ring_.size() - static_cast<std::size_t>(written_ - taken_); }
  void look() noexcept;
  void publish() noexcept;

  RingWords& words_;
  std::span<std::byte> ring_;
  std::size_t chunk_bytes_;
  std::uint64_t written_ = 0;
  std::uint64_t published_ = 0;
  std::uint64_t taken_ = 0;            // as last seen
  std::atomic<bool> damaged_ = false;  // the other direction's thread may ask; orders nothing
};

class RingReader {
 public:
  RingReader(RingWords& words, std::span<const std::byte> ring, std::size_t chunk_bytes)
      : words_(words), ring_(ring), chunk_bytes_(chunk_bytes) {}

  // Copies what there is; the last of its room becomes free with pass_on(), which says whether to wake the writer.
  std::size_t read(std::span<std::byte> into) noexcept;
  bool pass_on() noexcept;
  bool prepare_sleep() noexcept;
  bool has_bytes() noexcept;
  void end_sleep() noexcept { words_.reader_sleeps.store(0, std::memory_order_relaxed); }
  bool is_damaged() const { return damaged_.load(std::memory_order_relaxed); }

 private:
  void look() noexcept;
  void publish() noexcept;

  RingWords& words_;
  std::span<const std::byte> ring_;
  std::size_t chunk_bytes_;
  std::uint64_t written_ = 0;  // as last seen
  std::uint64_t taken_ = 0;
  std::uint64_t published_ = 0;
  std::atomic<bool> damaged_ = false;  // the other direction's thread may ask; orders nothing
};

}  // namespace horo
