// all_reduce over hosts. The members of a host divide the chunks among themselves and sum the host's contributions. One
// member per host and chunk sends that sum to the chunk's owner, which joins the sums of all hosts in canonical order.
// A host whose members are not one subtree of the canonical tree sends one sum for each of its largest subtrees. In any
// order (hosts-first), every host sends one sum.

#include <algorithm>
#include <map>

#include "ring/reduce/tree.h"
#include "ring/schedule/schedule_parts.h"

namespace horo {
namespace {

struct Run {
  int first = 0;
  int end = 0;
  bool empty() const { return first >= end; }
};

class Hierarchical {
 public:
  Hierarchical(const Shape& shape, int member, std::vector<TreeNode> nodes)
      : shape_(shape), me_(member), nodes_(std::move(nodes)) {
    std::map<int, std::size_t> number;  // by host id: the host's index, in order of its first member
    for (int m = 0; m < shape.size; ++m) {
      const auto [found, is_new] = number.try_emplace(host_of(shape, m), members_.size());
      if (is_new) members_.emplace_back();
      members_[found->second].push_back(m);
      place_.push_back({found->second, members_[found->second].size() - 1});
    }
    for (const auto& members : members_) width_ = std::max(width_, static_cast<int>(members.size()));
    find_subtrees();
  }

  Schedule make(const char* name) {
    schedule_ = blank(name, shape_, me_, hosts() * width_);
    schedule_.rounds.resize(4);
    if (nodes_.empty()) return schedule_;
    distribute_inputs();
    sum_host();
    send_to_owners();
    sum_all();
    distribute_results();
    return schedule_;
  }

 private:
  int hosts() const { return static_cast<int>(members_.size()); }
  const std::vector<int>& members(int host) const { return members_[static_cast<std::size_t>(host)]; }
  int my_host() const { return host(me_); }
  int host(int member) const { return static_cast<int>(place_[static_cast<std::size_t>(member)].first); }

  // The chunks of owner host `owner` that the member sums inside its own host.
  Run run_of(int member, int owner) const {
    const auto count = static_cast<int>(members(host(member)).size());
    const int place = static_cast<int>(place_[static_cast<std::size_t>(member)].second);
    const auto cut = [&](int i) { return owner * width_ + (i * width_ + count - 1) / count; };
    return {cut(place), cut(place + 1)};
  }
  // The chunks of `owner` that both members have; they are on different hosts.
  Run common_run(int a, int b, int owner) const {
    const Run x = run_of(a, owner), y = run_of(b, owner);
    return {std::max(x.first, y.first), std::min(x.end, y.end)};
  }
  static Part part(int area, Run run) { return {area, run.first, run.end - run.first}; }

  // Finds the largest nodes whose leaves are all on one host. `owner`: the host of all leaves of a node, or -1.
  void find_subtrees() {
    std::vector<int> owner(nodes_.size());
    std::vector<bool> inside(nodes_.size(), false);
    for (std::size_t i = 0; i < nodes_.size(); ++i) {
      const auto left = static_cast<std::size_t>(nodes_[i].left), right = static_cast<std::size_t>(nodes_[i].right);
      if (nodes_[i].left < 0) {
        owner[i] = host(nodes_[i].member);
      } else {
        owner[i] = owner[left] == owner[right] ? owner[left] : -1;
        inside[left] = inside[right] = owner[i] >= 0;
      }
    }
    subtrees_.resize(members_.size());
    for (std::size_t i = 0; i < nodes_.size(); ++i) {
      if (owner[i] >= 0 && !inside[i]) subtrees_[static_cast<std::size_t>(owner[i])].push_back(static_cast<int>(i));
    }
  }

  int new_area(Run run, bool accumulates) {
    schedule_.scratch.push_back({std::max(1, run.end - run.first), accumulates, run.first});
    return Schedule::kFirstScratch + static_cast<int>(schedule_.scratch.size()) - 1;
  }

  // Round 0: every member receives its chunks from the other members of its host.
  void distribute_inputs() {
    Round& round = schedule_.rounds[0];
    for (int owner = 0; owner < hosts(); ++owner) {
      const Run mine = run_of(me_, owner);
      for (const int peer : members(my_host())) {
        const Run theirs = run_of(peer, owner);
        if (peer != me_ && contributes(shape_, me_) && !theirs.empty()) {
          round.send.push_back({peer, part(Schedule::kIn, theirs)});
        }
        if (!contributes(shape_, peer) || mine.empty()) continue;
        const int area = peer == me_ ? static_cast<int>(Schedule::kIn) : new_area(mine, false);
        raw_[{owner, peer}] = area;
        if (peer != me_) round.receive.push_back({peer, part(area, mine)});
      }
    }
  }

  // Computes one value for each largest subtree of this host. The value of a leaf is its input.
  void sum_host() {
    for (int owner = 0; owner < hosts(); ++owner) {
      const Run mine = run_of(me_, owner);
      if (mine.empty()) continue;
      for (const int node : subtrees_[static_cast<std::size_t>(my_host())]) {
        const TreeNode& n = nodes_[static_cast<std::size_t>(node)];
        if (n.left < 0) {
          value_[{owner, node}] = raw_.at({owner, n.member});
          continue;
        }
        const int area = new_area(mine, true);
        value_[{owner, node}] = area;
        Combine combine{part(area, mine), {}};
        add_tree(
            nodes_, node,
            [&](int member) {
              return raw_.at({owner, member});
            },
            combine.tree);
        schedule_.rounds[0].combine.push_back(combine);
      }
    }
  }

  // Round 1: the values of the subtrees are sent to the owners of the chunks.
  void send_to_owners() {
    Round& round = schedule_.rounds[1];
    for (int other = 0; other < hosts(); ++other) {
      if (other == my_host()) continue;
      for (const int peer : members(other)) {
        const Run out = common_run(me_, peer, other);
        for (const int node : subtrees_[static_cast<std::size_t>(my_host())]) {
          if (!out.empty()) round.send.push_back({peer, part(value_.at({other, node}), out)});
        }
      }
      receive_values(round, other);
    }
  }

  void receive_values(Round& round, int other) {
    const Run mine = run_of(me_, my_host());
    if (mine.empty()) return;
    for (const int node : subtrees_[static_cast<std::size_t>(other)]) {
      value_[{my_host(), node}] = new_area(mine, nodes_[static_cast<std::size_t>(node)].left >= 0);
    }
    for (const int peer : members(other)) {
      const Run in = common_run(peer, me_, my_host());
      for (const int node : subtrees_[static_cast<std::size_t>(other)]) {
        if (!in.empty()) round.receive.push_back({peer, part(value_.at({my_host(), node}), in)});
      }
    }
  }

  void sum_all() {
    const Run mine = run_of(me_, my_host());
    if (mine.empty()) return;
    Combine combine{part(Schedule::kOut, mine), {}};
    add_values(static_cast<int>(nodes_.size()) - 1, combine.tree);
    schedule_.rounds[1].combine.push_back(combine);
  }

  void add_values(int node, std::vector<int>& tree) const {
    if (const auto found = value_.find({my_host(), node}); found != value_.end()) return tree.push_back(found->second);
    add_values(nodes_[static_cast<std::size_t>(node)].left, tree);
    add_values(nodes_[static_cast<std::size_t>(node)].right, tree);
    tree.push_back(Combine::kJoin);
  }

  // Round 2: results are sent to the other hosts. Round 3: to all members of each host.
  void distribute_results() {
    for (int other = 0; other < hosts(); ++other) {
      if (other == my_host()) continue;
      for (const int peer : members(other)) {
        const Run out = common_run(me_, peer, my_host()), in = common_run(me_, peer, other);
        if (!out.empty()) schedule_.rounds[2].send.push_back({peer, part(Schedule::kOut, out)});
        if (!in.empty()) schedule_.rounds[2].receive.push_back({peer, part(Schedule::kOut, in)});
      }
    }
    for (const int peer : members(my_host())) {
      if (peer == me_) continue;
      for (int owner = 0; owner < hosts(); ++owner) {
        const Run mine = run_of(me_, owner), theirs = run_of(peer, owner);
        if (!mine.empty()) schedule_.rounds[3].send.push_back({peer, part(Schedule::kOut, mine)});
        if (!theirs.empty()) schedule_.rounds[3].receive.push_back({peer, part(Schedule::kOut, theirs)});
      }
    }
  }

  const Shape& shape_;
  const int me_;
  const std::vector<TreeNode> nodes_;
  std::vector<std::vector<int>> members_;                   // by host
  std::vector<std::pair<std::size_t, std::size_t>> place_;  // by member: its host, and its place on that host
  int width_ = 0;                                           // members of the largest host
  std::vector<std::vector<int>> subtrees_;                  // by host: nodes that are its largest subtrees
  Schedule schedule_;
  std::map<std::pair<int, int>, int> raw_;    // {owner host, member of my host}: area of its input
  std::map<std::pair<int, int>, int> value_;  // {owner host, node}: area of its value
};

// Appends the canonical tree over a host's members. Returns false if none of them contributes.
bool add_host(const Shape& shape, int host, std::vector<TreeNode>& nodes) {
  Shape alone = shape;
  alone.contributors.assign(static_cast<std::size_t>(shape.size), -1);
  for (int m = 0; m < shape.size; ++m) {
    const auto at = static_cast<std::size_t>(m);
    if (host_of(shape, m) != host || !contributes(shape, m)) continue;
    alone.contributors[at] = shape.contributors.empty() ? m : shape.contributors[at];
  }
  const int before = static_cast<int>(nodes.size());
  for (TreeNode node : canonical_nodes(alone)) {
    if (node.left >= 0) node.left += before, node.right += before;
    nodes.push_back(node);
  }
  return static_cast<int>(nodes.size()) > before;
}

// A tree that sums the members of each host first, then the hosts, numbered in order of their first members.
std::vector<TreeNode> nodes_by_host(const Shape& shape) {
  std::vector<int> hosts, roots;
  std::vector<std::int64_t> numbers;
  std::vector<TreeNode> nodes;
  for (int m = 0; m < shape.size; ++m) {
    if (std::find(hosts.begin(), hosts.end(), host_of(shape, m)) != hosts.end()) continue;
    hosts.push_back(host_of(shape, m));
    if (!add_host(shape, hosts.back(), nodes)) continue;
    numbers.push_back(static_cast<std::int64_t>(roots.size()));
    roots.push_back(static_cast<int>(nodes.size()) - 1);
  }
  std::vector<int> stack;
  for (const TreeStep& step : canonical_tree(numbers)) {
    if (step.input != TreeStep::kJoin) {
      stack.push_back(roots[static_cast<std::size_t>(step.input)]);
      continue;
    }
    const int right = stack.back();
    stack.pop_back();
    const int left = stack.back();
    nodes.push_back({left, right, nodes[static_cast<std::size_t>(left)].member});
    stack.back() = static_cast<int>(nodes.size()) - 1;
  }
  return nodes;
}

}  // namespace

Schedule hierarchical_all_reduce(const Shape& shape, int member) {
  return Hierarchical(shape, member, canonical_nodes(shape)).make("hierarchical");
}

Schedule hosts_first_all_reduce(const Shape& shape, int member) {
  const std::vector<TreeNode> nodes = nodes_by_host(shape);
  Schedule schedule = Hierarchical(shape, member, nodes).make("hosts-first");
  const auto leaf = [](int of) { return of; };
  const bool is_canonical = whole_tree(nodes, leaf) == whole_tree(canonical_nodes(shape), leaf);
  schedule.order = is_canonical ? Order::kCanonical : Order::kFast;
  return schedule;
}

}  // namespace horo
