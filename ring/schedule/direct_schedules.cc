// Schedules in which every member exchanges messages with every other member. The k-th message of a member goes to the
// member k places further on, so that members do not all send to the same receiver at once.

#include "ring/schedule/schedule_parts.h"

namespace horo {
namespace {

// Scratch areas for received chunks: one for each other member that contributes.
class Arrivals {
 public:
  Arrivals(const Shape& shape, Schedule& schedule) : me_(schedule.member) {
    area_.assign(static_cast<std::size_t>(shape.size), -1);
    for (int member = 0; member < shape.size; ++member) {
      if (member == me_ || !contributes(shape, member)) continue;
      area_[static_cast<std::size_t>(member)] = Schedule::kFirstScratch + static_cast<int>(schedule.scratch.size());
      schedule.scratch.push_back({});
    }
  }
  // The area that holds the member's chunk.
  int operator()(int member) const { return member == me_ ? Schedule::kIn : area_[static_cast<std::size_t>(member)]; }

 private:
  const int me_;
  std::vector<int> area_;
};

struct Pair {
  int to;
  int from;
};

std::vector<Pair> pairs(int size, int member) {
  std::vector<Pair> pairs;
  for (int k = 1; k < size; ++k) pairs.push_back({wrap(member + k, size), wrap(member - k, size)});
  return pairs;
}

// Every owner receives its chunk from all contributors and sums it.
Round exchange_pieces(const Shape& shape, Schedule& schedule) {
  const int me = schedule.member;
  const Arrivals arrivals(shape, schedule);
  Round round;
  for (const auto& [to, from] : pairs(shape.size, me)) {
    if (contributes(shape, me)) round.send.push_back({to, {Schedule::kIn, to}});
    if (contributes(shape, from)) round.receive.push_back({from, {arrivals(from), me}});
  }
  const std::vector<int> tree = whole_tree(canonical_nodes(shape), arrivals);
  if (!tree.empty()) round.combine.push_back({{Schedule::kOut, me}, tree});
  return round;
}

bool has_no_contributor(const Shape& shape) {
  return canonical_nodes(shape).empty();
}

}  // namespace

Schedule one_shot_all_reduce(const Shape& shape, int member) {
  Schedule schedule = blank("one-shot", shape, member, 1);
  const Arrivals arrivals(shape, schedule);
  Round round;
  for (const auto& [to, from] : pairs(shape.size, member)) {
    if (contributes(shape, member)) round.send.push_back({to, {Schedule::kIn, 0}});
    if (contributes(shape, from)) round.receive.push_back({from, {arrivals(from), 0}});
  }
  const std::vector<int> tree = whole_tree(canonical_nodes(shape), arrivals);
  if (!tree.empty()) round.combine.push_back({{Schedule::kOut, 0}, tree});
  schedule.rounds.push_back(round);
  return schedule;
}

Schedule direct_all_reduce(const Shape& shape, int member) {
  Schedule schedule = blank("direct", shape, member, shape.size);
  schedule.rounds.push_back(exchange_pieces(shape, schedule));
  Round& gather = schedule.rounds.emplace_back();
  if (has_no_contributor(shape)) return schedule;
  for (const auto& [to, from] : pairs(shape.size, member)) {
    gather.send.push_back({to, {Schedule::kOut, member}});
    gather.receive.push_back({from, {Schedule::kOut, from}});
  }
  return schedule;
}

Schedule direct_reduce_scatter(const Shape& shape, int member) {
  Schedule schedule = blank("direct", shape, member, shape.size);
  schedule.rounds.push_back(exchange_pieces(shape, schedule));
  return schedule;
}

Schedule direct_all_gather(const Shape& shape, int member) {
  Schedule schedule = blank("direct", shape, member, shape.size);
  Round round;
  for (const auto& [to, from] : pairs(shape.size, member)) {
    round.send.push_back({to, {Schedule::kIn, member}});
    round.receive.push_back({from, {Schedule::kOut, from}});
  }
  round.combine.push_back({{Schedule::kOut, member}, {Schedule::kIn}});
  schedule.rounds.push_back(round);
  return schedule;
}

Schedule direct_all_to_all(const Shape& shape, int member) {
  const int n = shape.size;
  Schedule schedule = blank("direct", shape, member, n * n);
  Round round;
  for (const auto& [to, from] : pairs(n, member)) {
    round.send.push_back({to, {Schedule::kIn, member * n + to}});
    round.receive.push_back({from, {Schedule::kOut, from * n + member}});
  }
  round.combine.push_back({{Schedule::kOut, member * n + member}, {Schedule::kIn}});
  schedule.rounds.push_back(round);
  return schedule;
}

Schedule direct_gather(const Shape& shape, int member) {
  Schedule schedule = blank("direct", shape, member, shape.size);
  Round round;
  if (member == shape.root) {
    for (const auto& [to, from] : pairs(shape.size, member)) round.receive.push_back({from, {Schedule::kOut, from}});
    round.combine.push_back({{Schedule::kOut, member}, {Schedule::kIn}});
  } else {
    round.send.push_back({shape.root, {Schedule::kIn, member}});
  }
  schedule.rounds.push_back(round);
  return schedule;
}

Schedule direct_scatter(const Shape& shape, int member) {
  Schedule schedule = blank("direct", shape, member, shape.size);
  Round round;
  if (member == shape.root) {
    for (const auto& [to, from] : pairs(shape.size, member)) round.send.push_back({to, {Schedule::kIn, to}});
    round.combine.push_back({{Schedule::kOut, member}, {Schedule::kIn}});
  } else {
    round.receive.push_back({shape.root, {Schedule::kOut, member}});
  }
  schedule.rounds.push_back(round);
  return schedule;
}

Schedule scatter_broadcast(const Shape& shape, int member) {
  Schedule schedule = blank("scatter", shape, member, shape.size);
  Round scatter, gather;
  if (member == shape.root) {
    for (const auto& [to, from] : pairs(shape.size, member)) scatter.send.push_back({to, {Schedule::kIn, to}});
    scatter.combine.push_back({{Schedule::kOut, 0, shape.size}, {Schedule::kIn}});
  } else {
    scatter.receive.push_back({shape.root, {Schedule::kOut, member}});
  }
  // Every member sends its chunk to all others, except to the root, which has all chunks.
  for (const auto& [to, from] : pairs(shape.size, member)) {
    if (to != shape.root) gather.send.push_back({to, {Schedule::kOut, member}});
    if (member != shape.root) gather.receive.push_back({from, {Schedule::kOut, from}});
  }
  schedule.rounds = {scatter, gather};
  return schedule;
}

}  // namespace horo
