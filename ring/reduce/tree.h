// The canonical tree: the order in which the contributions of a reduction are summed.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace horo {

// A step of a postfix program for a stack: an index pushes that input, kJoin replaces the two topmost values by their
// combination, the lower one on the left.
struct TreeStep {
  static constexpr int kJoin = -1;
  int input;  // index into ids, or kJoin
};
// The canonical tree over ascending, distinct, non-negative ids: the binary trie, which splits at the highest bit in
// which the ids differ, the ids without that bit on the left. See docs/canonical_order.md.
std::vector<TreeStep> canonical_tree(std::span<const std::int64_t> ids);

}  // namespace horo
