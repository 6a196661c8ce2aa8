// The canonical tree: the order in which the contributions of a reduction are summed.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace horo {

// The canonical tree over ascending, distinct, non-negative ids: the binary trie, split at the highest bit in which
// they differ, lower half on the left. As a program for a stack: kPush i puts input i, kJoin combines the upper two.
struct TreeStep {
  static constexpr int kJoin = -1;
  int input;  // index into ids, or kJoin
};
std::vector<TreeStep> canonical_tree(std::span<const std::int64_t> ids);

}  // namespace horo
