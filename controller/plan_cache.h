// PlanCache: the leader's known plans: the tensors of each, which ranks use it, and on which ranks it is ready as a
// whole.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "controller/messages.h"
#include "controller/rank_set.h"
#include "controller/round_table.h"
#include "controller/stall_clock.h"

namespace horo {

struct Plan {
  std::uint32_t set = 0;
  std::vector<TensorId> tensors;            // empty: all ranks have applied the dissolution
  std::int32_t priority = 0;                // the greatest of its tensors
  std::size_t bytes = 0;                    // of all its tensors
  RankSet active;                           // ranks that report it as a whole
  RankSet complete;                         // ranks whose report of the whole is stored here, not in the ready table
  std::map<std::uint32_t, RankSet> absent;  // by slot: the ranks of `complete` that have no value
  std::vector<TimePoint> since;             // by rank: when it was last complete there; min(): never
  std::vector<TimePoint> complete_since;    // `since` of the last time that all ranks had it; empty: never
  std::size_t gathering = 0;                // its tensors that have a report in the ready table
  bool live = true;                         // not dissolved
  std::optional<StallTimer> stall_timer;    // runs while some ranks of the set are in `complete`
  PlanRounds rounds = {};                   // of `complete`, by round stream of its tensors; equal on all these ranks

  // Stores a rank's report of the whole; these slots are absent. The rank must not be in `complete`.
  void mark(int rank, const std::vector<std::uint32_t>& absent_slots, TimePoint now);
  bool is_absent(std::uint32_t slot, int rank) const;
  // The absent tensors, for the release of the plan.
  std::vector<SlotAbsence> exceptions() const;
  // Deletes the stored reports.
  void clear();
};

class PlanCache {
 public:
  // max_plans: greatest number of plans, dissolved ones included.
  PlanCache(int size, std::size_t max_plans) : size_(size), max_plans_(max_plans) {}

  bool full() const { return plans_.size() >= max_plans_; }
  // The cache must not be full. A plan never moves and is never deleted, because a report of a dissolved plan may be in
  // flight.
  PlanId define(std::uint32_t set, std::vector<TensorId> tensors);
  // Returns null if the plan was never defined.
  Plan* find(PlanId plan);
  const Plan* find(PlanId plan) const;
  std::vector<PlanId> live() const;

 private:
  const int size_;
  const std::size_t max_plans_;
  std::deque<Plan> plans_;
};

}  // namespace horo
