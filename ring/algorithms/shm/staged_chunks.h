// The chunks in which an all_reduce passes through the slice buffers.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "horo/base/shard.h"
#include "ring/algorithms/shm/sync.h"

namespace horo {

// Chunk k is staged, summed and collected under the step number at(k), and fills the slice buffer of that step and, if
// the collective is long, those of the steps after it. Long collectives have long chunks because members wait for each
// other twice per chunk.
struct StagedChunks {
  std::size_t bytes;
  std::uint64_t buffers;  // of each chunk
  std::uint64_t first;

  static constexpr std::size_t kLong = 1 << 20;
  static constexpr std::uint64_t kBuffersOfLong = 4;
  static_assert(ShmSync::kSliceBuffers % kBuffersOfLong == 0, "the buffers of a chunk are contiguous");
  // A chunk's buffers are free again five chunks later.
  static_assert(ShmSync::kSliceBuffers / kBuffersOfLong >= 5);

  StagedChunks(std::size_t bytes, std::uint64_t steps_before)
      : bytes(bytes), buffers(buffers_for(bytes)), first((steps_before / buffers + 1) * buffers) {}

  static std::uint64_t buffers_for(std::size_t bytes) { return bytes >= kLong ? kBuffersOfLong : 1; }
  static std::size_t chunk_bytes_for(std::size_t bytes) { return buffers_for(bytes) * ShmSync::kSliceBufferBytes; }

  std::size_t chunk_bytes() const { return buffers * ShmSync::kSliceBufferBytes; }
  std::uint64_t count() const { return (bytes + chunk_bytes() - 1) / chunk_bytes(); }
  std::uint64_t at(std::uint64_t k) const { return first + k * buffers; }
  Shard of(std::uint64_t k) const {
    const std::size_t begin = k * chunk_bytes();
    return {begin, std::min(chunk_bytes(), bytes - begin)};
  }
};

}  // namespace horo
