#include "ring/reduce/tree.h"

#include <algorithm>
#include <bit>

#include "horo/base/check.h"

namespace horo {
namespace {

void add_subtree(std::span<const std::int64_t> ids, int first, std::vector<TreeStep>& steps) {
  if (ids.size() == 1) return steps.push_back({first});
  // The highest bit in which any two ascending ids differ is the one in which the first and the last differ.
  const auto spread = static_cast<std::uint64_t>(ids.front()) ^ static_cast<std::uint64_t>(ids.back());
  const auto low = static_cast<std::uint64_t>(ids.front());
  const std::uint64_t bit = std::bit_floor(spread);
  const auto split = static_cast<std::int64_t>((low | (bit - 1)) & ~bit);  // the greatest id of the lower half
  const auto left = static_cast<std::size_t>(std::upper_bound(ids.begin(), ids.end(), split) - ids.begin());
  add_subtree(ids.first(left), first, steps);
  add_subtree(ids.subspan(left), first + static_cast<int>(left), steps);
  steps.push_back({TreeStep::kJoin});
}

}  // namespace

std::vector<TreeStep> canonical_tree(std::span<const std::int64_t> ids) {
  std::vector<TreeStep> steps;
  for (std::size_t i = 0; i < ids.size(); ++i) HORO_CHECK(ids[i] >= 0 && (i == 0 || ids[i - 1] < ids[i]));
  if (!ids.empty()) add_subtree(ids, 0, steps);
  return steps;
}

}  // namespace horo
