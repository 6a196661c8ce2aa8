// StallMonitor: the stall diagnosis of the leader. Follows every tensor and plan that some ranks have reported and
// others have not. Waiting for a slow rank is no error: it writes warnings, at growing pauses. Every warning and every
// search for a deadlock begins with a request to all ranks for the call sites and the waits of their callers.
//
// Tensors fail in two cases: of a deadlock (deadlock.h) that has lasted for config.deadlock_limit; and, if there is a
// config.stall_limit, after this time. Shortly before it, the ranks are asked, and a plan is dissolved, because its
// tensors must be distinguished before a rank is named for one of them.
//
// A person may ask at any time what the ranks wait for: then all ranks are asked at once (wait_report.h).
//
// It starts and stops timers and writes texts; it marks, dissolves and fails nothing. The caller carries out the
// results.
#pragma once

#include <cstdint>
#include <functional>
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

struct WaitReport;

struct PlanStall {
  PlanId plan = 0;
  StallPatience patience;
};
// What one due timer requires of the caller.
struct StallStep {
  std::optional<PlanStall> dissolve;
};
// The reason why a unit fails. culprit: the tensor of the unit that failed; empty: the unit itself failed.
struct UnitFailure {
  std::string culprit;
  std::string text;
};
// The tensors and units that fail because a limit has passed.
struct StallFailures {
  std::vector<FailTensors> items;           // for the stream: one item for all tensors that miss the same ranks
  std::vector<Entry*> entries;              // the tensors of these items
  std::vector<PlanStall> dissolve;          // plans that must be dissolved
  std::map<TensorName, UnitFailure> units;  // that fail with them, or because they are incomplete
};

class StallMonitor {
 public:
  // Keeps references to both.
  StallMonitor(const CoordinatorConfig& config, LeaderTables& tables);

  // The patience of a tensor or plan that begins to wait now.
  static StallPatience fresh(TimePoint now) { return {now}; }
  // When the functions below must be called next.
  std::optional<TimePoint> due() const;

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
  // The plans that must be dissolved, because a rank that has not completed the plan waits itself: it can wait for a
  // rank that waits for a tensor of this plan.
  std::vector<PlanStall> take_entangled();
  // The request that must be sent to all ranks, if any.
  std::optional<RequestDiagnosis> ask(TimePoint now);
  // After the answers, writes one warning for all tensors and plans that have waited for config.stall_warning.
  void warn(TimePoint now);
  // After the answers, searches for a deadlock, and returns the tensors and units that fail. If plans are part of it,
  // only these are returned: the next search distinguishes their tensors.
  StallFailures take_deadlocked(TimePoint now);
  // Removes and returns the tensors and units that must fail at config.stall_limit.
  StallFailures take_expired(TimePoint now);

  // ---- A question of a person. ask() sends it to all ranks.
  void asked_why(AskedWhy event) { why_ = std::move(event); }
  // After the answers.
  std::optional<Explain> take_explanation(TimePoint now);

  // A rank's answer. With the last one, entries whose limit has passed become due.
  void take_answer(int from, const Diagnosis& answer, TimePoint now);
  // The rank has left: no answer is expected from it.
  void rank_left(int rank) { round_.excuse(rank); }
  // The warnings since the last call, for this rank's log.
  std::vector<std::string> take_warnings() { return std::exchange(warnings_, {}); }

 private:
  std::optional<StallTimer>& timer_of(EntryOrPlan what) const;
  void restart(EntryOrPlan what, const StallPatience& patience);
  bool waits_for_others(EntryOrPlan what, int rank) const;
  void expire(EntryOrPlan what, const StallPatience& patience, TimePoint now);
  void add_failures_due_soon(TimePoint now);
  const RankSet& submitted(EntryOrPlan what) const;
  RankSet missing(EntryOrPlan what) const;
  StallGroup describe(EntryOrPlan what) const;
  void add_failures(const std::vector<Entry*>& entries, const std::function<std::string(const StallGroup&)>& text,
                    StallFailures& failures) const;
  std::vector<RankWaits> rank_waits(const std::set<int>& ranks, const std::vector<EntryOrPlan>& expired) const;
  WaitReport report(TimePoint now) const;  // wait_report.cc
  // Warnings and searches for deadlocks (stall_checks.cc).
  std::vector<EntryOrPlan> that_passed(Stage stage) const;
  bool warning_is_due(TimePoint now);
  bool search_is_due(TimePoint now);
  void plan_search(TimePoint now);
  void plan_next_search(TimePoint now, const RankSet& found);
  void pass_warnings_due_soon(TimePoint now);

  const CoordinatorConfig& config_;
  LeaderTables& tables_;
  StallClock clock_;
  DiagnosisRound round_;
  std::vector<std::string> warnings_;
  std::vector<EntryOrPlan> expired_;   // between advance() and take_expired()
  bool diagnosis_due_ = false;         // between advance() and ask()
  bool round_before_failure_ = false;  // the last round began because a tensor fails soon

  std::optional<AskedWhy> why_;  // not answered yet
  bool why_is_asked_ = false;    // the ranks are asked for it

  // Warnings.
  std::vector<EntryOrPlan> newly_late_;    // between advance() and ask()
  bool warning_asked_ = false;             // a warning is written after the answers
  std::optional<TimePoint> next_warning_;  // while what the last one named still waits
  Duration warning_pause_{};               // between the next two
  bool may_be_entangled_ = false;          // since take_entangled(), a plan has waited for this long
  // Searches for deadlocks.
  bool search_asked_ = false;  // the search is made after the answers
  std::optional<TimePoint> next_search_;
  TimePoint last_search_ = TimePoint::min();
  Duration search_pause_{};
};

}  // namespace horo
