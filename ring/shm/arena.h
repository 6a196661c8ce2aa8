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

#include "horo/base/mutex.h"
#include "horo/base/owner.h"
#include "horo/base/time.h"
#include "ring/collective.h"
#include "ring/shm/segment.h"

namespace horo {

// Any thread. Every allocation keeps the object alive.
class ShmArenas : public std::enable_shared_from_this<ShmArenas> {
 public:
  // `own`: this rank's arena; `peers`: by rank, those of this host that this process has mapped. Sizes may differ.
  ShmArenas(int rank, ShmSegment own, std::map<int, ShmSegment> peers);

  // Allocates in this rank's arena, on pages that no other allocation uses. Null data if the arena is full or the
  // machine has no memory.
  Allocation allocate(std::size_t bytes);
  // The same for memory that other ranks may still read after it was freed: its pages stay for kGrace.
  Allocation allocate_lasting(std::size_t bytes);
  static constexpr std::chrono::minutes kGrace{10};

  // The epoch has ended. What is freed from now on is given back with the whole arena, which takes a seventh of the
  // time if no process maps it any more. vacate_rest(): gives it back now, if an allocation keeps the arena.
  void end() noexcept;
  void vacate_rest() noexcept;

  // The offset of memory in this rank's arena; empty for other memory.
  std::optional<std::uint64_t> offset_of(const std::byte* data, std::size_t bytes) const;

  // Whether this process maps the arena of `rank`.
  bool sees(int rank) const { return rank == rank_ || peers_.contains(rank); }
  // The owner word of this rank's arena, which a thread of this rank holds while the rank takes part in collectives.
  OwnerWord& owner_word() const;
  // The first peer whose owner word shows its death; -1: none.
  int first_dead() const noexcept;

  // The address of an offset that `rank` announced. Throws ProtocolError if its arena does not have these bytes.
  std::byte* at(int rank, std::uint64_t offset, std::size_t bytes) const;

 private:
  struct Block {
    std::size_t bytes = 0;
    TimePoint retired = TimePoint::max();  // when it was freed, if other ranks may still read it
  };

  Allocation take(std::size_t bytes, bool lasts);
  void free(std::size_t begin, std::size_t bytes) noexcept;
  void retire(std::size_t begin) noexcept;
  void free_retired(TimePoint now) REQUIRES(mutex_);
  std::size_t find_gap(std::size_t bytes) REQUIRES(mutex_);

  const int rank_;
  ShmSegment own_;
  const std::map<int, ShmSegment> peers_;
  Mutex mutex_;
  bool has_ended_ GUARDED_BY(mutex_) = false;
  std::map<std::size_t, Block> blocks_ GUARDED_BY(mutex_);  // by offset
};

// Makes an arena as large as the machine's memory, or as a file may be. Its first page holds the owner word; no other
// page is backed by memory before it is allocated. Throws what ShmSegment throws, or std::runtime_error if the limit of
// file sizes is too low.
ShmSegment make_arena();

}  // namespace horo
