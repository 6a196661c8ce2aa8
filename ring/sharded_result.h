// The result of an all_reduce that is divided among the members' memory: see ShardedGroup.
#pragma once

#include <algorithm>
#include <cstddef>
#include <vector>

#include "horo/base/shard.h"

namespace horo {

// How `bytes` are divided among members: chunk by chunk, so that a member sums a part of each chunk. The parts of a
// member lie one behind the other in its shard. Chunks have chunk_bytes each, but for the last one.
struct ShardLayout {
  static constexpr std::size_t kSmallUnit = 64;
  static constexpr std::size_t kUnit = 4096;  // bytes: large parts begin on pages of their own

  std::size_t bytes = 0;
  std::size_t chunk_bytes = 1;
  int members = 1;

  // The part of `bytes` bytes that belongs to a member.
  static Shard part_of(std::size_t bytes, int members, int member) {
    const std::size_t unit = bytes < kUnit * 4 * static_cast<std::size_t>(members) ? kSmallUnit : kUnit;
    const Shard units = shard_of((bytes + unit - 1) / unit, members, member);
    const std::size_t begin = std::min(bytes, units.begin * unit);
    return {begin, std::min(bytes, (units.begin + units.size) * unit) - begin};
  }

  Shard chunk(std::size_t k) const { return {k * chunk_bytes, std::min(chunk_bytes, bytes - k * chunk_bytes)}; }
  // Of a chunk, from its begin.
  Shard part(std::size_t k, int member) const { return part_of(chunk(k).size, members, member); }
  // Where the part of chunk k begins in the member's shard.
  std::size_t place(std::size_t k, int member) const { return k * part_of(chunk_bytes, members, member).size; }
  std::size_t shard_bytes(int member) const {
    const std::size_t last = (bytes - 1) / chunk_bytes;
    return bytes == 0 ? 0 : place(last, member) + part(last, member).size;
  }
};

struct ShardedResult {
  ShardLayout layout;
  std::vector<const std::byte*> shards;  // by member

  bool is_empty() const { return shards.empty(); }

  // Copies a range of the result. Any thread.
  void read(std::size_t begin, std::size_t bytes, std::byte* to) const;
};

}  // namespace horo
