// The division of a buffer into shards, for ring chunks, the owned parts of a direct exchange and the rows of a
// reduce_scatter.
#pragma once

#include <algorithm>
#include <cstddef>

namespace horo {

// A contiguous part of a buffer, in elements.
struct Shard {
  std::size_t begin = 0;
  std::size_t size = 0;
};

// The part of `count` elements owned by `index` out of `parts`. Shards tile [0, count) in order; the first
// count % parts of them are one element longer.
constexpr Shard shard_of(std::size_t count, int parts, int index) {
  const auto n = static_cast<std::size_t>(parts);
  const auto i = static_cast<std::size_t>(index);
  const std::size_t longer = std::min(i, count % n);
  return {i * (count / n) + longer, count / n + (i < count % n ? 1 : 0)};
}
static_assert(shard_of(10, 4, 0).size == 3 && shard_of(10, 4, 3).begin == 8);
static_assert(shard_of(2, 4, 3).size == 0, "more ranks than elements is legal");

}  // namespace horo
