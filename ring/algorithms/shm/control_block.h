// The layout of a member's control block (see ShmSync), which all members of a group map.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

#include "ring/algorithms/shm/arrival_flag.h"
#include "ring/algorithms/shm/sync.h"
#include "ring/shm/cache_distance.h"

namespace horo {

// Each word is written by the owner of the block alone, except `wakeups`, `claimed` and `left`. Zeros at first.
struct ShmControlBlock {
  static constexpr std::uint64_t kFlags = ShmSync::kFlags;
  // More than flags: the next buffer may be written for a prefetch while a peer still reads the one kFlags - 1 before.
  static constexpr std::uint64_t kInlineBuffers = 80;
  static_assert(kFlags + 1 < kInlineBuffers);
  static constexpr std::size_t kProgressKinds = 3;
  static constexpr std::size_t kPageBytes = 4096;

  struct Progress {
    alignas(kCacheLineBytes) std::atomic<std::uint64_t> step;
  };

  std::array<ArrivalFlag, kFlags> flags;  // by sync point, modulo kFlags
  std::array<Progress, kProgressKinds> progress;
  // Futex of the owner: `is_asleep` is set with seq_cst before the owner's last poll, and through all slices of a
  // sleep.
  alignas(kCacheLineBytes) std::atomic<std::uint32_t> is_asleep;
  std::atomic<std::uint32_t> wakeups;
  std::atomic<int> core;  // on which the owner last waited: a hint, orders nothing
  // Parts of the owner's share that any members have claimed since the last sync point.
  alignas(kCacheLineBytes) std::atomic<std::uint64_t> claimed;
  CacheLineProbe probe;
  // The other members on the host, and how many of them need the block no more. A member counts itself if the stamp is
  // the one that it has read at the start: else the memory is another block by now.
  std::uint64_t stamp;  // not 0, and another one for each block
  std::uint32_t others;
  std::atomic<std::uint32_t> left;
  // The last sync point at which the owner gave up; read by members whose wait for it fails.
  alignas(kCacheLineBytes) std::atomic<std::uint64_t> given_up;
  alignas(kCacheLineBytes) std::byte inline_buffers[kInlineBuffers][ShmSync::kInlineBytes];
  alignas(kPageBytes) std::byte slice_buffers[ShmSync::kSliceBuffers][ShmSync::kSliceBufferBytes];
};

}  // namespace horo
