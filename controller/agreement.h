// Agreement: the state of each instance of a tensor, from its first report to its end. Takes the ranks' reports that
// they have it ready (mark()), and decides whether the instance waits, is complete (and is queued for release) or
// fails. Part of the leader.
//
// The readiness of a tensor is stored in one of two places. In the ready table, rank by rank: always possible, one bit
// for each tensor and rank. Or in its plan: one bit for each plan and rank, used while every rank reports the plan as a
// whole. split() moves it from the plan to the table, and nothing moves it back; the next instance begins in the plan
// again. While a plan holds a report, the table holds none for the plan's tensors.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "controller/coordinator.h"
#include "controller/held_units.h"
#include "controller/leader_tables.h"
#include "controller/messages.h"
#include "controller/release_queue.h"
#include "controller/stall_monitor.h"
#include "controller/step_plans.h"
#include "controller/stream_watermarks.h"

namespace horo {

class Agreement {
 public:
  // Keeps references to all; adds its decisions to `items`, which become the next message to all ranks.
  Agreement(const CoordinatorConfig& config, LeaderTables& tables, StreamWatermarks& progress, StepPlans& step_plans,
            std::vector<DownItem>& items);

  // ---- Reports.
  // The rank has the tensor ready. Throws ProtocolError if it has no part in the tensor, or reported it before. Call
  // update() next.
  void mark(VersionRef ref, int rank, bool absent, TimePoint now);
  // The same, for a report in the rank's current round. False: the round was given up (give_up()), so the rank's
  // submission fails, and is not recorded. The entry may be deleted then.
  bool report(VersionRef ref, int rank, bool absent, TimePoint now);
  // Decides after a report. patience: of an instance that begins to wait.
  void update(Entry& entry, const StallPatience& patience);
  // The same for a plan whose reports are stored in the plan.
  void update_plan(PlanId id, const StallPatience& patience);

  // ---- Plans.
  // Moves the reports that the plan holds to the ready table.
  void split(Plan& plan, StallPatience patience);
  // Ends the plan, after a split(). keep_apart: its tensors are in no plan for StepPlans::kStepsApart steps.
  void dissolve(PlanId id, const StallPatience& patience, bool keep_apart = true);

  // ---- Rounds (agreement_rounds.cc).
  // The rank has given up its current round: what other ranks have reported in that round, and this rank has not,
  // fails on these ranks. patience: of tensors whose plan is split.
  void give_up(int rank, const RoundFailed& failed, const StallPatience& patience);

  // ---- Ends of an instance. Fails the instance with this text on all its ranks, together with all other tensors of
  // its units. May delete the entry.
  void fail(Entry& entry, const std::string& text);
  // Fails all reported tensors of the unit, and of the other units that these tensors belong to. stalled: the ranks
  // that have not submitted them are warned.
  void fail_unit(const TensorName& unit, const UnitFailure& why, bool stalled);
  // The instance was released, skipped or failed. May delete the entry.
  void finish(Entry& entry);

  // ---- Events that change what is complete.
  void rank_left(int rank, TimePoint now);
  // A rank has joined the set, and tables.joins has it.
  void rank_joined(std::uint32_t set, TimePoint now);
  void timer_fired(TimePoint now);
  // Deletes all reports of the set, and its plans.
  void forget_set(std::uint32_t set);

  StallMonitor& stalls() { return stalls_; }
  const StallMonitor& stalls() const { return stalls_; }
  HeldUnits& units() { return units_; }
  ReleaseQueue& queue() { return queue_; }

 private:
  void complete(Entry& entry, const StallPatience& patience);
  void complete_in_unit(Entry& entry, const TensorSpec& spec, const StallPatience& patience);
  std::string trouble_of(Entry& entry) const;
  bool disagrees_on_members(const Entry& entry) const;
  void fail_members(Entry& entry);
  void withdraw(Entry& entry, std::uint64_t stream, const GivenUpRound& failed);
  void refuse(const TensorName& name, std::vector<int> ranks, const GivenUpRound& failed);
  void carry_out(StallFailures failures);

  LeaderTables& tables_;
  StreamWatermarks& progress_;
  StepPlans& step_plans_;
  std::vector<DownItem>& items_;
  StallMonitor stalls_;
  HeldUnits units_;
  ReleaseQueue queue_;
};

}  // namespace horo
