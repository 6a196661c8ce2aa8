// What the makers of schedules share.
#pragma once

#include <vector>

#include "ring/schedule/schedule.h"

namespace horo {

inline int wrap(int value, int size) {
  return (value % size + size) % size;
}

// Whether the kind adds values up; the others move them.
inline bool reduces(CollectiveKind kind) {
  return kind == CollectiveKind::kAllReduce || kind == CollectiveKind::kReduce ||
         kind == CollectiveKind::kReduceScatter;
}

inline bool contributes(const Shape& shape, int member) {
  return shape.contributors.empty() || shape.contributors[static_cast<std::size_t>(member)] >= 0;
}

inline int host_of(const Shape& shape, int member) {
  return shape.hosts.empty() ? 0 : shape.hosts[static_cast<std::size_t>(member)];
}

// An empty schedule of the member.
Schedule blank(const char* name, const Shape& shape, int member, int chunks);

// The canonical tree as nodes, children before parents; the root is the last. Leaves are members that contribute.
struct TreeNode {
  int left = -1, right = -1;  // nodes; -1: a leaf
  int member = -1;            // a leaf's; of an inner node: the first of its leaves
  int begin = 0, end = 0;     // members from the first leaf to one past the last (others may lie between)
};
std::vector<TreeNode> canonical_nodes(const Shape& shape);

// Whether all sums of the schedule are of whole tensors: what an operation that needs them can be run with.
bool combines_whole(const Schedule& schedule);

// Appends the postfix program of the node to `tree`; `area_of(member)` is where a leaf lies.
template <class AreaOf>
void add_tree(const std::vector<TreeNode>& nodes, int node, const AreaOf& area_of, std::vector<int>& tree) {
  const TreeNode& n = nodes[static_cast<std::size_t>(node)];
  if (n.left < 0) return tree.push_back(area_of(n.member));
  add_tree(nodes, n.left, area_of, tree);
  add_tree(nodes, n.right, area_of, tree);
  tree.push_back(Combine::kJoin);
}

// The whole canonical sum.
template <class AreaOf>
std::vector<int> whole_tree(const std::vector<TreeNode>& nodes, const AreaOf& area_of) {
  std::vector<int> tree;
  if (!nodes.empty()) add_tree(nodes, static_cast<int>(nodes.size()) - 1, area_of, tree);
  return tree;
}

}  // namespace horo
