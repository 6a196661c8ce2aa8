// StallMonitor: the stall diagnosis of the leader. Follows every tensor and plan that some ranks have reported and
// others have not: first a warning; shortly before the limit, a request to all ranks for the call sites of their
// callers; at the limit, the failure, with the call sites that the ranks answered. A plan is dissolved together with
// the request, because its tensors must be distinguished before a rank is named for one of them.
//
// It starts and stops timers and writes texts; it marks, dissolves and fails nothing. The caller carries out the
// results.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "controller/coordinator.h"
#include "controller/diagnosis_round.h"
#include "controller/leader_tables.h"
#include "controller/messages.h"
#include "controller/stall_clock.h"
#include "controller/stall_texts.h"

namespace horo {

struct PlanStall {
  PlanId plan = 0;
  StallPatience patience;
};
// The actions that one due timer requires of the caller, in this order.
struct StallStep {
  std::optional<RequestDiagnosis> request;  // to be sent to all ranks
  std::optional<PlanStall> dissolve;
};
// The reason why a unit fails. culprit: the tensor of the unit that failed; empty: the unit itself failed.
struct UnitFailure {
  std::string culprit;
  std::string text;
};
// The tensors and units that fail because their limit has passed.
struct StallFailures {
  std::vector<FailTensors> items;           // for the stream: one item for all tensors that miss the same ranks
  std::vector<Entry*> entries;              // the tensors of these items
  std::map<TensorName, UnitFailure> units;  // that fail with them, or because they are incomplete
};

class StallMonitor {
 public:
  // Keeps references to both.
  StallMonitor(const CoordinatorConfig& config, LeaderTables& tables);

  // The patience of a tensor or plan that begins to wait now.
  StallPatience fresh(TimePoint now) const { return clock_.fresh(now); }
  // When advance() must be called next.
  std::optional<TimePoint> due() const { return clock_.earliest(); }

  // Starts the timer of an entry or plan, unless it runs.
  void start(Entry& entry, const StallPatience& patience);
  void start(PlanId plan, const StallPatience& patience);
  // Stops the timer. The entry may be deleted afterwards.
  void stop(Entry& entry);
  void stop(Plan& plan);
  // The names of the entries whose timers run. By name, because acting on one entry may delete others.
  std::vector<TensorName> waiting_names() const;

  // ---- When the timer fires, in this order.
  // Advances one due timer to its next stage; nullopt: no other timer is due.
  std::optional<StallStep> advance(TimePoint now);
  // Writes one warning for all tensors and plans whose warnings were due. Returns the plans among them that must be
  // dissolved, because a rank that has not completed the plan waits itself: it can wait for a rank that waits for a
  // tensor of this plan.
  std::vector<PlanStall> warn(TimePoint now);
  // Removes and returns the tensors and units that must fail.
  StallFailures take_expired(TimePoint now);

  // A rank's call sites. With the last answer, entries whose limit has passed become due.
  void take_answer(int from, const Diagnosis& answer);
  // The rank has left: no answer is expected from it.
  void rank_left(int rank) { round_.excuse(rank); }
  // The warnings since the last call, for this rank's log.
  std::vector<std::string> take_warnings() { return std::exchange(warnings_, {}); }

 private:
  std::optional<StallTimer>& timer_of(EntryOrPlan what);
  bool waits_for_others(EntryOrPlan what, int rank) const;
  void expire(EntryOrPlan what, const StallPatience& patience, TimePoint now);
  void add_warnings_due_soon(TimePoint now);
  void add_failures_due_soon(TimePoint now);
  StallGroup describe(EntryOrPlan what) const;
  FailTensors failure(const std::vector<Entry*>& entries, const std::vector<EntryOrPlan>& expired) const;
  std::vector<RankWaits> rank_waits(const std::set<int>& ranks, const std::vector<EntryOrPlan>& expired) const;

  const CoordinatorConfig& config_;
  LeaderTables& tables_;
  StallClock clock_;
  DiagnosisRound round_;
  std::vector<std::string> warnings_;
  // Between advance() and warn(), take_expired().
  std::vector<EntryOrPlan> warned_;
  std::vector<EntryOrPlan> expired_;
};

}  // namespace horo
