// Schedules between neighbours of a ring, and in log2 N steps. Their order of summation depends on the members' places.

#include <algorithm>
#include <bit>

#include "ring/schedule/schedule_parts.h"

namespace horo {
namespace {

// Whether any of the `count` members from `first` on contributes; the member after the last one is member 0.
bool any_contributes(const Shape& shape, int first, int count) {
  for (int k = 0; k < count; ++k) {
    if (contributes(shape, wrap(first + k, shape.size))) return true;
  }
  return false;
}

struct RingAreas {
  int raw;      // a received input
  int partial;  // a received partial sum
  int sum;      // the sum that is sent on
};

// Chunk c starts at member c, travels around the ring, and each member adds its value; member c - 1 is the last.
Round ring_reduce_round(const Shape& shape, int member, int k, const RingAreas& areas) {
  const int n = shape.size;
  Round round;
  const int out = wrap(member - k, n);
  if (any_contributes(shape, out, k + 1)) {
    round.send.push_back({wrap(member + 1, n), {k == 0 ? Schedule::kIn : areas.sum, out}});
  }
  const int in = wrap(out - 1, n);
  const int arrival = k == 0 ? areas.raw : areas.partial;
  Combine combine{{k == n - 2 ? Schedule::kOut : areas.sum, in}, {}};
  if (any_contributes(shape, in, k + 1)) {
    round.receive.push_back({wrap(member - 1, n), {arrival, in}});
    combine.tree.push_back(arrival);
  }
  if (contributes(shape, member)) combine.tree.push_back(Schedule::kIn);
  if (combine.tree.size() == 2) combine.tree.push_back(Combine::kJoin);
  if (!combine.tree.empty()) round.combine.push_back(combine);
  return round;
}

// ---- log-step: block b travels to member b. The member that is `away` places before member b adds the values of
// members further away, and sends the sum on by the highest power of two in `away`.

class LogStepReduceScatter {
 public:
  LogStepReduceScatter(const Shape& shape, int member) : shape_(shape), me_(member), n_(shape.size) {}

  Schedule make() {
    Schedule schedule = blank("log-step", shape_, me_, n_);
    schedule.order = Order::kFast;
    schedule.scratch = {{n_, true, 0}, {n_, true, 0}, {n_, false, 0}};
    for (int distance = n_ > 1 ? static_cast<int>(std::bit_floor(static_cast<unsigned>(n_ - 1))) : 0; distance > 0;
         distance /= 2) {
      schedule.rounds.push_back(round(distance));
    }
    if (schedule.rounds.empty()) schedule.rounds.emplace_back();
    if (exists(me_, 0)) schedule.rounds.back().combine.push_back({{Schedule::kOut, me_}, {holder(me_, 0)}});
    return schedule;
  }

 private:
  static constexpr int kSum = Schedule::kFirstScratch;
  static constexpr int kPartial = kSum + 1;
  static constexpr int kRaw = kSum + 2;

  // Whether the member `away` places before `block` has a value for it at any time.
  bool exists(int block, int away) const {
    return contributes(shape_, wrap(block - away, n_)) || has_child(block, away, 0);
  }
  // Whether that member receives a value from further away, by a step of more than `least`.
  bool has_child(int block, int away, int least) const {
    for (int step = 1; away + step < n_; step *= 2) {
      if (step > away && step > least && exists(block, away + step)) return true;
    }
    return false;
  }
  // The area of the complete value.
  int holder(int block, int away) const { return has_child(block, away, 0) ? kSum : static_cast<int>(Schedule::kIn); }

  Round round(int distance) const {
    Round round;
    const int to = wrap(me_ + distance, n_);
    const int from = wrap(me_ - distance, n_);
    for (int beyond = 0; beyond < distance && beyond + distance < n_; ++beyond) {
      send(round, to, wrap(to + beyond, n_), beyond + distance);
      add(round, from, wrap(me_ + beyond, n_), beyond, distance);
    }
    return round;
  }

  void send(Round& round, int to, int block, int away) const {
    if (exists(block, away)) round.send.push_back({to, {holder(block, away), block}});
  }

  void add(Round& round, int from, int block, int away, int distance) const {
    if (!exists(block, away + distance)) return;
    const int arrival = holder(block, away + distance) == kSum ? kPartial : kRaw;
    round.receive.push_back({from, {arrival, block}});
    Combine combine{{kSum, block}, {arrival}};
    const bool has_sum = has_child(block, away, distance);
    if (has_sum || contributes(shape_, me_)) {
      combine.tree = {has_sum ? kSum : Schedule::kIn, arrival, Combine::kJoin};
    }
    round.combine.push_back(combine);
  }

  const Shape& shape_;
  const int me_;
  const int n_;
};

// The run of `count` blocks from `first` on, as two parts if it wraps around.
std::vector<Part> around(int area, int first, int count, int size) {
  const int start = wrap(first, size);
  const int before_end = std::min(count, size - start);
  std::vector<Part> parts{{area, start, before_end}};
  if (before_end < count) parts.push_back({area, 0, count - before_end});
  return parts;
}

}  // namespace

Schedule ring_all_reduce_schedule(const Shape& shape, int member) {
  const int n = shape.size;
  Schedule schedule = blank("ring", shape, member, n);
  schedule.order = n > 1 ? Order::kFast : Order::kCanonical;
  if (n == 1) {
    Round& only = schedule.rounds.emplace_back();
    if (contributes(shape, 0)) only.combine.push_back({{Schedule::kOut, 0}, {Schedule::kIn}});
    return schedule;
  }
  schedule.scratch = {{1, false}, {1, true}, {1, true}};
  const RingAreas areas{Schedule::kFirstScratch, Schedule::kFirstScratch + 1, Schedule::kFirstScratch + 2};
  for (int k = 0; k < n - 1; ++k) schedule.rounds.push_back(ring_reduce_round(shape, member, k, areas));
  const bool has_result = any_contributes(shape, 0, n);
  for (int k = 0; k < n - 1; ++k) {
    Round& round = schedule.rounds.emplace_back();
    if (!has_result) continue;
    round.send.push_back({wrap(member + 1, n), {Schedule::kOut, wrap(member + 1 - k, n)}});
    round.receive.push_back({wrap(member - 1, n), {Schedule::kOut, wrap(member - k, n)}});
  }
  return schedule;
}

Schedule log_step_reduce_scatter(const Shape& shape, int member) {
  return LogStepReduceScatter(shape, member).make();
}

Schedule log_step_all_gather(const Shape& shape, int member) {
  const int n = shape.size;
  Schedule schedule = blank("log-step", shape, member, n);
  for (int distance = 1; distance < n; distance *= 2) {
    Round& round = schedule.rounds.emplace_back();
    const int count = std::min(distance, n - distance);
    const int area = distance == 1 ? Schedule::kIn : Schedule::kOut;
    for (const Part& part : around(area, member, count, n)) round.send.push_back({wrap(member - distance, n), part});
    for (const Part& part : around(Schedule::kOut, member + distance, count, n)) {
      round.receive.push_back({wrap(member + distance, n), part});
    }
  }
  if (schedule.rounds.empty()) schedule.rounds.emplace_back();
  schedule.rounds.front().combine.push_back({{Schedule::kOut, member}, {Schedule::kIn}});
  return schedule;
}

// A block that travels `away` places takes a step for each power of two in `away`, the least first. In transit it lies
// in one of two areas of its own alternately, because the next block arrives while it is sent.
Schedule log_step_all_to_all(const Shape& shape, int member) {
  const int n = shape.size;
  Schedule schedule = blank("log-step", shape, member, n * n);
  schedule.scratch.resize(2 * static_cast<std::size_t>(n));
  const auto transit = [](int away, int done) {
    return Schedule::kFirstScratch + 2 * away + std::popcount(static_cast<unsigned>(done)) % 2;
  };
  for (int step = 1; step < n; step *= 2) {
    Round& round = schedule.rounds.emplace_back();
    for (int away = step; away < n; ++away) {
      if ((away & step) == 0) continue;
      const int before = away & (step - 1);
      const int after = before | step;
      const int sender = wrap(member - before, n);
      const int chunk_out = sender * n + wrap(sender + away, n);
      round.send.push_back({wrap(member + step, n), {before == 0 ? Schedule::kIn : transit(away, before), chunk_out}});
      const int origin = wrap(member - after, n);
      const int chunk_in = origin * n + wrap(origin + away, n);
      const int area = after == away ? Schedule::kOut : transit(away, after);
      round.receive.push_back({wrap(member - step, n), {area, chunk_in}});
    }
  }
  if (schedule.rounds.empty()) schedule.rounds.emplace_back();
  schedule.rounds.front().combine.push_back({{Schedule::kOut, member * n + member}, {Schedule::kIn}});
  return schedule;
}

}  // namespace horo
