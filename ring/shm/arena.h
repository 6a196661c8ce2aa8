// The arenas of the ranks of one host: each rank's own memory for what takes part in collectives, which all of them
// see, each at an address of its own.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "horo/base/mutex.h"
#include "horo/base/time.h"
#include "ring/group.h"
#include "ring/shm/owner.h"
#include "ring/shm/segment.h"

namespace horo {

// Any thread. Allocations keep it alive.
class ShmArenas : public std::enable_shared_from_this<ShmArenas> {
 public:
  // By rank: what of this host was mapped here; `own` is this rank's. Sizes may differ.
  ShmArenas(int rank, ShmSegment own, std::map<int, ShmSegment> peers);

  // Of this rank's arena, on pages of their own. Null data: there is no room, or no memory.
  Allocation allocate(std::size_t bytes);
  // The same for what others may still read when it is freed: its memory stays for kGrace.
  Allocation allocate_lasting(std::size_t bytes);
  static constexpr std::chrono::minutes kGrace{10};

  // Where memory of this rank's arena lies in it; nothing for other memory.
  std::optional<std::uint64_t> offset_of(const std::byte* data, std::size_t bytes) const;

  // Whether this rank sees the arena of that one.
  bool sees(int rank) const { return rank == rank_ || peers_.contains(rank); }
  // This rank's, for who lives as long as it takes part; and the first of the others that died, -1: nobody.
  OwnerWord& owner_word() const;
  int first_dead() const noexcept;

  // Bytes of a rank's arena, at a place that it named. Throws ProtocolError where its arena has no such place.
  std::byte* at(int rank, std::uint64_t offset, std::size_t bytes) const;

 private:
  struct Piece {
    std::size_t bytes = 0;
    TimePoint retired = TimePoint::max();  // freed, but perhaps still read
  };

  Allocation take(std::size_t bytes, bool lasts);
  void free(std::size_t begin, std::size_t bytes) noexcept;
  void retire(std::size_t begin) noexcept;
  void bury(TimePoint now) REQUIRES(mutex_);
  std::size_t find_room(std::size_t bytes) REQUIRES(mutex_);

  const int rank_;
  ShmSegment own_;
  const std::map<int, ShmSegment> peers_;
  Mutex mutex_;
  std::map<std::size_t, Piece> taken_ GUARDED_BY(mutex_);  // by their begin
};

// As large as this machine has memory and a file may be. Only the first page, where the owner word is, is backed until
// something is allocated. Throws what ShmSegment throws, or std::runtime_error: files may have too little.
ShmSegment make_arena();

}  // namespace horo
