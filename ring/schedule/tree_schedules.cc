// Schedules along trees. Sums travel up the canonical tree, whose leaves are the members that contribute. Results
// travel down a binomial tree.

#include <algorithm>

#include "ring/schedule/schedule_parts.h"

namespace horo {
namespace {

constexpr int kSum = Schedule::kFirstScratch;
constexpr int kPartial = kSum + 1;
constexpr int kRaw = kSum + 2;

Round& round_at(Schedule& schedule, std::size_t at) {
  if (schedule.rounds.size() <= at) schedule.rounds.resize(at + 1);
  return schedule.rounds[at];
}

// The sums of the canonical tree. The first leaf of a node is its leader and holds the node's value.
class Ascent {
 public:
  explicit Ascent(const Shape& shape) : nodes_(canonical_nodes(shape)), height_(nodes_.size(), 0) {
    for (std::size_t i = 0; i < nodes_.size(); ++i) {
      if (nodes_[i].left >= 0) height_[i] = 1 + std::max(height_of(nodes_[i].left), height_of(nodes_[i].right));
    }
  }

  bool empty() const { return nodes_.empty(); }
  int leader() const { return nodes_.back().member; }
  std::size_t rounds() const { return nodes_.empty() ? 0 : static_cast<std::size_t>(height_.back()); }
  bool has_inner_root() const { return nodes_.back().left >= 0; }

  // Appends the messages and sums: the leader of each node receives all chunks of the right child's value and adds
  // them. `last`: the area for the sum of the root.
  void add_to(Schedule& schedule, int last) const {
    const auto all = [&](int area) { return Part{area, 0, schedule.chunks}; };
    for (std::size_t i = 0; i < nodes_.size(); ++i) {
      if (nodes_[i].left < 0) continue;
      const TreeNode& right = nodes_[static_cast<std::size_t>(nodes_[i].right)];
      Round& round = round_at(schedule, static_cast<std::size_t>(height_[i] - 1));
      if (right.member == schedule.member) {
        round.send.push_back({nodes_[i].member, all(is_leaf(nodes_[i].right) ? Schedule::kIn : kSum)});
      }
      if (nodes_[i].member != schedule.member) continue;
      const int arrival = is_leaf(nodes_[i].right) ? kRaw : kPartial;
      round.receive.push_back({right.member, all(arrival)});
      const int own = is_leaf(nodes_[i].left) ? Schedule::kIn : kSum;
      const int to = i + 1 == nodes_.size() ? last : kSum;
      round.combine.push_back({all(to), {own, arrival, Combine::kJoin}});
    }
  }

 private:
  int height_of(int node) const { return height_[static_cast<std::size_t>(node)]; }
  bool is_leaf(int node) const { return nodes_[static_cast<std::size_t>(node)].left < 0; }

  const std::vector<TreeNode> nodes_;
  std::vector<int> height_;
};

// Sends the value in the area `area` of `root` to the outputs of all members, from round `first` on.
void add_descent(Schedule& schedule, std::size_t first, int root, int area) {
  const int n = schedule.size;
  const int place = wrap(schedule.member - root, n);
  std::size_t at = first;
  for (int reached = 1; reached < n; reached *= 2, ++at) {
    Round& round = round_at(schedule, at);
    if (place < reached && place + reached < n) {
      const int from = place == 0 ? area : static_cast<int>(Schedule::kOut);
      round.send.push_back({wrap(schedule.member + reached, n), {from, 0}});
    }
    if (place >= reached && place < 2 * reached) {
      round.receive.push_back({wrap(schedule.member - reached, n), {Schedule::kOut, 0}});
    }
  }
}

}  // namespace

Schedule tree_all_reduce(const Shape& shape, int member) {
  Schedule schedule = blank("tree", shape, member, 1);
  schedule.scratch = {{1, true}, {1, true}, {1, false}};
  schedule.rounds.emplace_back();
  const Ascent ascent(shape);
  if (ascent.empty()) return schedule;
  ascent.add_to(schedule, Schedule::kOut);
  if (!ascent.has_inner_root() && member == ascent.leader()) {
    schedule.rounds[0].combine.push_back({{Schedule::kOut, 0}, {Schedule::kIn}});
  }
  const std::size_t first = std::max<std::size_t>(1, ascent.rounds());
  schedule.rounds.resize(first);
  add_descent(schedule, first, ascent.leader(), Schedule::kOut);
  return schedule;
}

Schedule tree_reduce(const Shape& shape, int member) {
  Schedule schedule = blank("tree", shape, member, 1);
  schedule.scratch = {{1, true}, {1, true}, {1, false}};
  const Ascent ascent(shape);
  schedule.rounds.resize(ascent.rounds() + 1);
  if (ascent.empty()) return schedule;
  const bool leads_root = ascent.leader() == shape.root;
  ascent.add_to(schedule, leads_root ? static_cast<int>(Schedule::kOut) : kSum);
  Round& last = schedule.rounds.back();
  const bool is_sum = ascent.has_inner_root();
  if (leads_root) {
    if (!is_sum && member == shape.root) last.combine.push_back({{Schedule::kOut, 0}, {Schedule::kIn}});
    return schedule;
  }
  if (member == ascent.leader())
    last.send.push_back({shape.root, {is_sum ? kSum : static_cast<int>(Schedule::kIn), 0}});
  if (member != shape.root) return schedule;
  const int arrival = is_sum ? kPartial : kRaw;
  last.receive.push_back({ascent.leader(), {arrival, 0}});
  last.combine.push_back({{Schedule::kOut, 0}, {arrival}});
  return schedule;
}

Schedule tree_reduce_scatter(const Shape& shape, int member) {
  const int n = shape.size;
  Schedule schedule = blank("tree", shape, member, n);
  schedule.scratch = {{n, true}, {n, true}, {n, false}};
  const Ascent ascent(shape);
  schedule.rounds.resize(ascent.rounds() + 1);
  if (ascent.empty()) return schedule;
  ascent.add_to(schedule, kSum);
  Round& last = schedule.rounds.back();
  const bool is_sum = ascent.has_inner_root();
  const int area = is_sum ? kSum : static_cast<int>(Schedule::kIn);
  if (member == ascent.leader()) {
    for (int to = 0; to < n; ++to) {
      if (to != member) last.send.push_back({to, {area, to}});
    }
    last.combine.push_back({{Schedule::kOut, member}, {area}});
    return schedule;
  }
  const int arrival = is_sum ? kPartial : kRaw;
  last.receive.push_back({ascent.leader(), {arrival, member}});
  last.combine.push_back({{Schedule::kOut, member}, {arrival}});
  return schedule;
}

Schedule tree_broadcast(const Shape& shape, int member) {
  Schedule schedule = blank("tree", shape, member, 1);
  schedule.rounds.emplace_back();
  add_descent(schedule, 0, shape.root, Schedule::kIn);
  if (member == shape.root) schedule.rounds[0].combine.push_back({{Schedule::kOut, 0}, {Schedule::kIn}});
  return schedule;
}

}  // namespace horo
