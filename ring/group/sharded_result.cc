#include "ring/sharded_result.h"

#include <cstring>

#include "horo/base/past_caches.h"

namespace horo {
namespace {

// A longer result does not fit in a core's own caches. Stores that bypass them take half the time then, since the lines
// that they replace need not be read: 16 MiB in 1.3 ms instead of 2.6 ms.
constexpr std::size_t kMostCached = 1 << 20;

}  // namespace

void ShardedResult::read(std::size_t begin, std::size_t bytes, std::byte* to) const {
  const bool is_long = layout.bytes > kMostCached;
  const std::size_t end = begin + bytes;
  for (std::size_t k = begin / layout.chunk_bytes; begin < end; ++k) {
    const Shard chunk = layout.chunk(k);
    for (int member = 0; member < layout.members && begin < end; ++member) {
      const Shard part = layout.part(k, member);
      const std::size_t part_begin = chunk.begin + part.begin;
      if (begin >= part_begin + part.size) continue;
      const std::size_t skipped = begin - part_begin, most = std::min(end - begin, part.size - skipped);
      const std::byte* const from = shards[static_cast<std::size_t>(member)] + layout.place(k, member) + skipped;
      is_long ? copy_past_caches(to, from, most) : static_cast<void>(std::memcpy(to, from, most));
      to += most;
      begin += most;
    }
  }
}

}  // namespace horo
