// The arenas of the ranks of one host. Each rank has one for buffers that take part in collectives. All ranks of the
// host map it, each at an address of its own, so places in it are named by offsets.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "horo/base/auth.h"
#include "horo/base/mutex.h"
#include "horo/base/owner.h"
#include "horo/base/time.h"
#include "ring/collective.h"
#include "ring/shm/segment.h"

namespace horo {

// The arena of this rank. Any thread. Every allocation keeps the object alive.
class Arena : public std::enable_shared_from_this<Arena> {
 public:
  // As large as the machine's memory, or as a file may be. No page but the first is backed by memory before it is
  // allocated. Throws what ShmSegment throws, or std::runtime_error if the limit of file sizes is too low.
  static std::shared_ptr<Arena> make();

  // Allocates on pages that no other allocation uses. Null data if the arena is full or the machine has no memory.
  Allocation allocate(std::size_t bytes);
  // The same for memory that other ranks may still read after it was freed: its pages stay for kGrace, or until
  // is_unused(its begin), which is called under a lock.
  using IsUnused = bool (*)(const std::byte*);
  Allocation allocate_lasting(std::size_t bytes, IsUnused is_unused = nullptr);
  static constexpr std::chrono::minutes kGrace{10};

  // An epoch uses the arena, or has ended. end_epoch(): whether none uses it. What is freed from then on is given back
  // with the whole arena, which takes a seventh of the time if no process maps it any more. vacate_rest(): gives it
  // back now, if an allocation keeps the arena.
  void begin_epoch() noexcept;
  bool end_epoch() noexcept;
  void vacate_rest() noexcept;

  // The offset of memory in the arena; empty for other memory.
  std::optional<std::uint64_t> offset_of(const std::byte* data, std::size_t bytes) const;
  OwnerWord& owner_word() const;
  const ShmSegment& segment() const { return segment_; }

 private:
  struct Block {
    std::size_t bytes = 0;
    TimePoint retired = TimePoint::max();  // when it was freed, if other ranks may still read it
    IsUnused is_unused = nullptr;
  };

  explicit Arena(ShmSegment segment) : segment_(std::move(segment)) {}
  Allocation take(std::size_t bytes, bool lasts, IsUnused is_unused = nullptr);
  void free(std::size_t begin, std::size_t bytes) noexcept;
  void retire(std::size_t begin) noexcept;
  void free_retired(TimePoint now) REQUIRES(mutex_);
  bool is_kept(std::size_t begin, const Block& block, TimePoint now) const REQUIRES(mutex_);
  std::size_t find_gap(std::size_t bytes) REQUIRES(mutex_);

  ShmSegment segment_;
  Mutex mutex_;
  int epochs_ GUARDED_BY(mutex_) = 0;
  bool is_vacated_ GUARDED_BY(mutex_) = false;
  std::map<std::size_t, Block> blocks_ GUARDED_BY(mutex_);  // by offset
};

// The arenas that an epoch uses. Any thread.
class ShmArenas {
 public:
  // `own`: this rank's arena; `peers`: by rank, those of this host that this process has mapped. Sizes may differ.
  using Peers = std::map<int, std::shared_ptr<const ShmSegment>>;
  ShmArenas(int rank, std::shared_ptr<Arena> own, Peers peers);

  const std::shared_ptr<Arena>& own() const { return own_; }
  // Whether this process maps the arena of `rank`.
  bool sees(int rank) const { return rank == rank_ || peers_.contains(rank); }
  // The first peer whose owner word shows its death; -1: none.
  int first_dead() const noexcept;
  // The address of an offset that `rank` announced. Throws ProtocolError if its arena does not have these bytes.
  std::byte* at(int rank, std::uint64_t offset, std::size_t bytes) const;
  // The mapping of a peer's arena, if this process maps the file already; null: it does not.
  std::shared_ptr<const ShmSegment> mapping_of(const Fd& file) const;

 private:
  const int rank_;
  const std::shared_ptr<Arena> own_;
  const Peers peers_;
};

}  // namespace horo
