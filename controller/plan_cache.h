// PlanCache: the leader's known plans: of what each consists, which ranks use it, and where it is ready as a whole.
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
#include "controller/stall_clock.h"

namespace horo {

struct Plan {
  std::uint32_t set = 0;
  std::vector<TensorId> tensors;
  std::int32_t priority = 0;                // the greatest of its tensors'
  std::size_t bytes = 0;                    // of all of them
  RankSet active;                           // ranks that report it as a whole
  RankSet complete;                         // ranks whose whole report is kept here, not in the ready table
  std::map<std::uint32_t, RankSet> absent;  // by slot, of those complete
  std::vector<TimePoint> since;             // by rank: when it was last complete there; min(): never
  std::vector<TimePoint> complete_since;    // the same of the last time that all ranks had it; empty: never
  std::size_t gathering = 0;                // its tensors that have a rank in the ready table
  bool live = true;
  std::optional<StallTimer> stall_timer;

  // The whole report of a rank, but for these slots. `complete` must not have the rank.
  void mark(int rank, const std::vector<std::uint32_t>& absent_slots, TimePoint now);
  bool is_absent(std::uint32_t slot, int rank) const;
  // What to tell all ranks once it is complete everywhere.
  std::vector<SlotAbsence> exceptions() const;
  void clear();
};

class PlanCache {
 public:
  // max_plans: how many there may ever be.
  PlanCache(int size, std::size_t max_plans) : size_(size), max_plans_(max_plans) {}

  bool full() const { return plans_.size() >= max_plans_; }
  // Not when full. Plans stay where they are for good, dead ones too: a report of one may still be on its way.
  PlanId define(std::uint32_t set, std::vector<TensorId> tensors);
  // Null if there never was such a plan.
  Plan* find(PlanId plan);
  const Plan* find(PlanId plan) const;
  std::vector<PlanId> live() const;

 private:
  const int size_;
  const std::size_t max_plans_;
  std::deque<Plan> plans_;
};

}  // namespace horo
