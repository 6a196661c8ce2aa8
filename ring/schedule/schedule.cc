// Shared parts of all schedules: the canonical tree over members, printing, and the list of makers.

#include "ring/schedule/schedule.h"

#include <functional>

#include "horo/base/say.h"
#include "ring/reduce/tree.h"
#include "ring/schedule/schedule_parts.h"

namespace horo {
namespace {

std::string print(const Part& part) {
  std::string area = part.area == Schedule::kIn    ? "in"
                     : part.area == Schedule::kOut ? "out"
                                                   : say("scratch", part.area - Schedule::kFirstScratch);
  if (part.count == 1) return say(area, "[", part.first, "]");
  return say(area, "[", part.first, "..", part.first + part.count - 1, "]");
}

std::string print(const Combine& combine) {
  std::vector<std::string> stack;
  for (const int step : combine.tree) {
    if (step != Combine::kJoin) {
      Part leaf = combine.to;
      leaf.area = step;
      stack.push_back(print(leaf));
      continue;
    }
    const std::string right = stack.back();
    stack.pop_back();
    stack.back() = "(" + stack.back() + " + " + right + ")";
  }
  return print(combine.to) + " = " + (stack.empty() ? "nothing" : stack.back());
}

}  // namespace

Schedule blank(const char* name, const Shape& shape, int member, int chunks) {
  Schedule schedule;
  schedule.name = name;
  schedule.kind = shape.kind;
  schedule.size = shape.size;
  schedule.member = member;
  schedule.chunks = chunks;
  return schedule;
}

std::vector<TreeNode> canonical_nodes(const Shape& shape) {
  std::vector<std::int64_t> ids;
  std::vector<int> members;
  for (int member = 0; member < shape.size; ++member) {
    if (!contributes(shape, member)) continue;
    members.push_back(member);
    ids.push_back(shape.contributors.empty() ? member : shape.contributors[static_cast<std::size_t>(member)]);
  }
  std::vector<TreeNode> nodes;
  std::vector<int> stack;
  for (const TreeStep& step : canonical_tree(ids)) {
    TreeNode node;
    if (step.input == TreeStep::kJoin) {
      node.right = stack.back();
      stack.pop_back();
      node.left = stack.back();
      stack.pop_back();
      node.member = nodes[static_cast<std::size_t>(node.left)].member;
      node.begin = nodes[static_cast<std::size_t>(node.left)].begin;
      node.end = nodes[static_cast<std::size_t>(node.right)].end;
    } else {
      node.member = members[static_cast<std::size_t>(step.input)];
      node.begin = node.member;
      node.end = node.member + 1;
    }
    stack.push_back(static_cast<int>(nodes.size()));
    nodes.push_back(node);
  }
  return nodes;
}

bool combines_whole(const Schedule& schedule) {
  for (const Round& round : schedule.rounds) {
    for (const Combine& combine : round.combine) {
      if (combine.tree.size() > 1 && combine.to.count < schedule.chunks) return false;
    }
  }
  return true;
}

std::string print(const Schedule& schedule) {
  std::string text = say(schedule.name, ", member ", schedule.member, " of ", schedule.size, ", ", schedule.chunks,
                         " chunks, ", name_of(schedule.order), "\n");
  for (std::size_t r = 0; r < schedule.rounds.size(); ++r) {
    const Round& round = schedule.rounds[r];
    std::string line;
    const auto add = [&line](const std::string& what) { line += (line.empty() ? " " : "; ") + what; };
    for (const Message& message : round.send) add(say("send ", print(message.part), " to ", message.peer));
    for (const Message& message : round.receive) add(say("receive ", print(message.part), " from ", message.peer));
    for (const Combine& combine : round.combine) add(print(combine));
    text += say("round ", r, ":", line.empty() ? " -" : line, "\n");
  }
  return text;
}

const std::vector<NamedMaker>& all_schedule_makers() {
  using K = CollectiveKind;
  static const std::vector<NamedMaker> makers = {
      {"one-shot", K::kAllReduce, one_shot_all_reduce},
      {"direct", K::kAllReduce, direct_all_reduce},
      {"ring", K::kAllReduce, ring_all_reduce_schedule},
      {"halving-doubling", K::kAllReduce, halving_doubling_all_reduce},
      {"tree", K::kAllReduce, tree_all_reduce},
      {"hierarchical", K::kAllReduce, hierarchical_all_reduce},
      {"hosts-first", K::kAllReduce, hosts_first_all_reduce},
      {"direct", K::kReduceScatter, direct_reduce_scatter},
      {"log-step", K::kReduceScatter, log_step_reduce_scatter},
      {"tree", K::kReduceScatter, tree_reduce_scatter},
      {"direct", K::kAllGather, direct_all_gather},
      {"log-step", K::kAllGather, log_step_all_gather},
      {"direct", K::kAllToAll, direct_all_to_all},
      {"log-step", K::kAllToAll, log_step_all_to_all},
      {"tree", K::kBroadcast, tree_broadcast},
      {"scatter", K::kBroadcast, scatter_broadcast},
      {"tree", K::kReduce, tree_reduce},
      {"direct", K::kGather, direct_gather},
      {"direct", K::kScatter, direct_scatter},
  };
  return makers;
}

}  // namespace horo
