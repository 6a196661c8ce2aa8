#include "controller/deadlock.h"

#include <algorithm>
#include <utility>

namespace horo {
namespace {

// The ranks that each tensor of a thread waits for. Of a tensor that waits for the others of its unit: the ranks that
// each of those waits for.
using ThreadWaits = std::vector<RankSet>;

// Collects what a rank waits for. An instance that began after the rank's answer is not the one that it waits for.
class WaitsOf {
 public:
  WaitsOf(LeaderTables& tables, int rank, const RankAnswer& answer) : tables_(tables), rank_(rank), answer_(answer) {}

  std::vector<ThreadWaits> threads() const {
    std::vector<ThreadWaits> all;
    for (const std::vector<Awaited>& thread : answer_.answer.threads) {
      ThreadWaits& waits = all.emplace_back();
      for (const Awaited& one : thread) add(one, waits);
    }
    return all;
  }

 private:
  void add(const Awaited& one, ThreadWaits& waits) const {
    if (tables_.sets.find(one.name.set) == nullptr) return;
    if (one.is_join) return add_join(one.name.set, waits);
    const Entry* entry = tables_.tensors.find(one.name);
    if (entry == nullptr) return;
    const Plan* plan = tables_.plans.find(entry->plan);
    if (plan != nullptr && plan->complete.contains(rank_)) {
      if (began(plan->since)) waits.push_back(tables_.members(plan->set).without(plan->complete));
    } else if (entry->ready.contains(rank_) && began(entry->since)) {
      entry->held ? add_unit(*entry, waits) : add_entry(*entry, waits);
    }
  }
  void add_join(std::uint32_t set, ThreadWaits& waits) const {
    const auto join = tables_.joins.all().find(set);
    if (join == tables_.joins.all().end() || !join->second.ranks.contains(rank_)) return;
    if (join->second.since <= answer_.at) waits.push_back(tables_.members(set).without(join->second.ranks));
  }
  void add_entry(const Entry& entry, ThreadWaits& waits) const {
    if (entry.stall_timer) waits.emplace_back(tables_.size, tables_.missing(entry));
  }
  void add_unit(const Entry& held, ThreadWaits& waits) const {
    for (const TensorName& unit : ReadyTable::units(held)) {
      for (const Entry* entry : tables_.tensors.of_unit(unit)) {
        if (!entry->held) add_entry(*entry, waits);
      }
    }
  }
  bool began(const std::vector<TimePoint>& since) const { return since[static_cast<std::size_t>(rank_)] <= answer_.at; }

  LeaderTables& tables_;
  const int rank_;
  const RankAnswer& answer_;
};

bool is_stuck(const ThreadWaits& waits, const RankSet& ranks) {
  return std::ranges::any_of(waits, [&](const RankSet& missing) { return !missing.empty() && ranks.covers(missing); });
}

}  // namespace

TimePoint unchanged_since(const RankAnswer& answer) {
  return answer.at - answer.answer.unchanged;
}

// Begins with all ranks that wait, and removes ranks with a thread that may continue, until there are none.
RankSet find_deadlock(LeaderTables& tables, const std::vector<RankAnswer>& answers, TimePoint until) {
  std::vector<std::pair<int, std::vector<ThreadWaits>>> waiting;
  for (int rank = 0; rank < tables.size; ++rank) {
    const RankAnswer& answer = answers[static_cast<std::size_t>(rank)];
    const bool waits = answer.at != TimePoint::min() && !answer.answer.threads.empty();
    if (waits && !tables.left.contains(rank) && unchanged_since(answer) <= until) {
      waiting.emplace_back(rank, WaitsOf(tables, rank, answer).threads());
    }
  }
  for (;;) {
    RankSet ranks(tables.size);
    for (const auto& [rank, threads] : waiting) ranks.insert(rank);
    const auto may_continue = [&ranks](const auto& one) {
      return !std::ranges::all_of(one.second, [&](const ThreadWaits& waits) { return is_stuck(waits, ranks); });
    };
    if (std::erase_if(waiting, may_continue) == 0) return ranks;
  }
}

}  // namespace horo
