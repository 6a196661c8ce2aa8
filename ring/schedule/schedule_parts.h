// Helpers that the makers, the proof and the runner of schedules share.
#pragma once

#include <algorithm>
#include <cstddef>
#include <vector>

#include "horo/base/collective_kind.h"
#include "ring/schedule/schedule.h"

namespace horo {

// value modulo size, from 0 to size - 1.
inline int wrap(int value, int size) {
  return (value % size + size) % size;
}

inline bool contributes(const Shape& shape, int member) {
  return shape.contributors.empty() || shape.contributors[static_cast<std::size_t>(member)] >= 0;
}

inline int host_of(const Shape& shape, int member) {
  return shape.hosts.empty() ? 0 : shape.hosts[static_cast<std::size_t>(member)];
}

// True for kinds whose tensor is cut evenly into chunks; the chunks of other kinds are the members' parts.
inline bool cuts_evenly(CollectiveKind kind) {
  return kind == CollectiveKind::kAllReduce || kind == CollectiveKind::kReduce || kind == CollectiveKind::kBroadcast;
}

// Whether the area holds partial results, in the accumulator type.
inline bool accumulates(const Schedule& schedule, int area) {
  return area >= Schedule::kFirstScratch &&
         schedule.scratch[static_cast<std::size_t>(area - Schedule::kFirstScratch)].accumulates;
}

// The sum of size(chunk) over the chunks of a scratch area; for a floating area the maximum over all runs of its
// length.
template <class Size>
std::size_t room_for(const Scratch& scratch, int chunks, const Size& size) {
  const int last = scratch.base == Scratch::kFloating ? chunks - scratch.chunks : scratch.base;
  std::size_t most = 0;
  for (int first = std::max(0, scratch.base); first <= last; ++first) {
    std::size_t sum = 0;
    for (int chunk = first; chunk < first + scratch.chunks; ++chunk) sum += size(chunk);
    most = std::max(most, sum);
  }
  return most;
}

// An empty schedule of the member.
Schedule blank(const char* name, const Shape& shape, int member, int chunks);

// The canonical tree as nodes, children before parents, the root last. The leaves are the members that contribute.
struct TreeNode {
  int left = -1, right = -1;  // indices of nodes; -1: the node is a leaf
  int member = -1;            // of a leaf; of an inner node: that of its first leaf
  int begin = 0, end = 0;     // the range of members from the first leaf to the last; it may contain other members
};
std::vector<TreeNode> canonical_nodes(const Shape& shape);

// Whether every sum of the schedule covers the whole tensor, as operations with CustomOp::whole require.
bool combines_whole(const Schedule& schedule);

// Appends the postfix program of the node to `tree`. `area_of(member)` is the area that holds a leaf.
template <class AreaOf>
void add_tree(const std::vector<TreeNode>& nodes, int node, const AreaOf& area_of, std::vector<int>& tree) {
  const TreeNode& n = nodes[static_cast<std::size_t>(node)];
  if (n.left < 0) return tree.push_back(area_of(n.member));
  add_tree(nodes, n.left, area_of, tree);
  add_tree(nodes, n.right, area_of, tree);
  tree.push_back(Combine::kJoin);
}

// The postfix program of the whole canonical tree; empty if no member contributes.
template <class AreaOf>
std::vector<int> whole_tree(const std::vector<TreeNode>& nodes, const AreaOf& area_of) {
  std::vector<int> tree;
  if (!nodes.empty()) add_tree(nodes, static_cast<int>(nodes.size()) - 1, area_of, tree);
  return tree;
}

}  // namespace horo
