// LeaderTables: the leader's state of the job: process sets, joins, ranks that have left, tensors and known plans. The
// objects that decide (agreement.h, release_queue.h, stall_monitor.h, step_plans.h) share one instance by reference.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "controller/coordinator.h"
#include "controller/joins.h"
#include "controller/plan_cache.h"
#include "controller/rank_set.h"
#include "controller/ready_table.h"
#include "controller/round_table.h"
#include "controller/set_table.h"

namespace horo {

struct LeaderTables {
  LeaderTables(const CoordinatorConfig& config, SetTable sets);

  // The set must exist.
  const RankSet& members(std::uint32_t set) const { return sets.find(set)->members; }
  // " of process set 'tp0'" for messages; see of_set_text().
  std::string of_set(std::uint32_t set) const { return of_set_text(set, sets.find(set)->name); }

  // The ranks that must report a tensor with this spec: the members of its set; of a send_recv, its two ranks; of the
  // end of a set, the ranks that know it; of the begin or end of a set of members, these. Throws ProtocolError for
  // ranks or sets that do not exist.
  RankSet needs(const TensorSpec& spec) const;
  // The ranks of `needs` that have left and are neither in `ready` nor joined in the set, in the order in which they
  // left.
  std::vector<int> left_without(const RankSet& needs, const RankSet& ready, std::uint32_t set) const;
  // The ranks that have not reported this instance and have not joined.
  std::vector<int> missing(const Entry& entry) const;

  const int size;
  SetTable sets;
  ReadyTable tensors;
  PlanCache plans;
  Joins joins;
  RoundTable rounds;
  RankSet left;
  std::vector<int> left_order;  // the ranks of `left`, the first to leave first

 private:
  RankSet needs_of_removal(const TensorSpec& spec) const;
  RankSet needs_of_members(const TensorSpec& spec) const;
};

}  // namespace horo
