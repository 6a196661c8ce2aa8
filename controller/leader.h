// Leader: rank 0's half of the coordinator. Takes the ranks' reports, decides, and tells all ranks in one ordered
// stream.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "controller/bucketer.h"
#include "controller/diagnosis_round.h"
#include "controller/flow.h"
#include "controller/messages.h"
#include "controller/plan_cache.h"
#include "controller/rank_set.h"
#include "controller/ready_table.h"
#include "controller/set_table.h"
#include "controller/stall_clock.h"
#include "controller/stall_texts.h"

namespace horo {

class Leader {
 public:
  explicit Leader(const CoordinatorConfig& config);

  // A rank's report. Throws ProtocolError naming it if it cannot be.
  void take(int from, const UpMessage& message, TimePoint now);
  // At the next flush, what was released between the last step end and now becomes known plans.
  void step_ended(std::uint32_t set) { ended_[set] = released_[set].size(); }
  void rank_left(int rank, TimePoint now);
  // Warns of what waits, and fails what has waited too long.
  void timer_fired(TimePoint now);
  // For this rank's log, since the last call.
  std::vector<std::string> take_warnings() { return std::exchange(warnings_, {}); }

  // What all ranks have to be told now, if anything.
  std::optional<DownMessage> flush();

  // When timer_fired() is needed next.
  std::optional<TimePoint> due() const { return clock_.earliest(); }
  bool has_left(int rank) const { return left_.contains(rank); }
  // Of what was ready at the earliest at the time that belongs to its set.
  std::vector<ReadyTime> ready_times(const std::function<TimePoint(std::uint32_t)>& from) const;

 private:
  // Steps for which the tensors of a dissolved plan are in no plan.
  static constexpr std::uint64_t kStepsApart = 100;

  struct Joins {
    RankSet ranks;
    int last = 0;  // rank in the set
  };
  // Ready everywhere, and not yet released.
  struct Complete {
    Waiting what;
    std::size_t passed = 0;  // of its set, ready later and released before it
  };
  // The same, to choose from. tensors, bytes: what goes by the set's lane; none waits for none.
  struct Candidate {
    std::size_t place = 0;  // in complete_
    std::uint32_t set = 0;
    std::int32_t priority = 0;
    std::size_t tensors = 0;
    std::size_t bytes = 0;
    std::string_view unit = {};
  };
  // A tensor for plans to come. turn: when it was ready, among all.
  struct Listed {
    std::uint64_t turn = 0;
    TensorId tensor = 0;
  };

  // Reports.
  void take_request(int from, const Request& request, TimePoint now);
  void take_number(int from, TensorId id, bool absent, TimePoint now);
  void take_tensor(int from, Place place, bool absent, TimePoint now);
  void take_plan(int from, PlanId id, const std::vector<std::uint32_t>& absent_slots, TimePoint now);
  void take_plan_singly(int from, const Plan& plan, const std::vector<std::uint32_t>& absent_slots, TimePoint now);
  void take_join(int from, const TensorSpec& spec, TimePoint now);
  Plan& plan_of(int from, PlanId id);
  bool gone(int from, std::uint32_t set) const;
  void check_member(int from, std::uint32_t set, const std::string& name) const;
  bool crossed_failure(int from, const TensorName& name) const;
  bool crossed_failure(int from, const Plan& plan) const;

  // Decisions.
  void mark(Place place, int rank, bool absent, TimePoint now);
  void settle(Entry& entry, const StallPatience& patience);
  void let_go(Entry& entry, std::int32_t priority);
  void settle_plan(PlanId id, const StallPatience& patience);
  void complete(Entry& entry, const StallPatience& patience);
  std::string trouble_of(Entry& entry) const;
  void spread(Plan& plan, StallPatience patience);
  void dissolve(PlanId id, const StallPatience& patience, std::uint64_t steps_apart = kStepsApart);
  void fail(Entry& entry, const std::string& text);
  void finish(Entry& entry);
  void stop_waiting(std::optional<Wait>& waiting);
  std::vector<TensorName> waiting_names() const;
  std::vector<int> left_without(const RankSet& needs, const RankSet& ready, std::uint32_t set) const;

  // Process sets and joins.
  const RankSet& members(std::uint32_t set) const { return sets_.find(set)->members; }
  const RankSet* joined(std::uint32_t set) const;
  RankSet needs(const TensorSpec& spec) const;
  std::string of_set(std::uint32_t set) const;
  void define_set(Entry& entry);
  void end_set(Entry& entry);
  void forget_set(std::uint32_t set);
  void end_joins();
  void fail_lost_join(std::uint32_t set);

  // Units.
  std::vector<TensorName> held_units(std::uint32_t set) const;
  void hold(Entry& entry, const TensorSpec& spec, const StallPatience& patience);
  void fail_unit(const TensorName& unit, const std::string& culprit, const std::string& text, bool stalled);

  // Priorities.
  Candidate candidate(std::size_t place);
  std::set<std::uint32_t> ending_sets();
  std::vector<Waiting> choose();
  std::vector<bool> choose_by_priority(std::vector<Candidate>& candidates);
  void count_passed(const std::vector<Candidate>& candidates, const std::vector<bool>& goes);
  bool tells(std::uint32_t set, CollectiveKind kind);
  void take_done(int from, const Done& done);

  // What waits too long.
  std::optional<Wait>& wait_of(const Waiting& waiting);
  bool has(const Waiting& waiting, int rank) const;
  void next_stage(const Waiting& waiting, std::vector<Waiting>& warned, std::vector<Waiting>& expired, TimePoint now);
  void ask(TimePoint now);
  void take_answer(int from, const Diagnosis& answer);
  void warn(std::vector<Waiting> warned, TimePoint now);
  void dissolve_entangled(const std::vector<Waiting>& warned, const std::vector<Instead>& instead);
  void give_up(std::vector<Waiting> expired, TimePoint now);
  std::vector<int> missing_of(const Entry& entry) const;
  Stalled stalled(const Waiting& waiting) const;
  std::vector<Instead> instead_of(const std::set<int>& ranks, const std::vector<Waiting>& expired) const;

  // Flush.
  void release_complete();
  void release_alone(Entry& entry, std::vector<Entry*>& removals);
  void release_bucket(const std::vector<Entry*>& entries, std::vector<int> absent_ranks);
  void release_plan(PlanId id);
  void skip(Entry& entry);
  std::vector<int> participants(Entry& entry) const;
  void list(Entry& entry, Version& version);
  std::vector<TensorId> take_step(std::uint32_t set, std::size_t released);
  BucketLimits limits(std::size_t least) const;
  void define_plans(std::uint32_t set, std::size_t released);
  void define_plan(std::uint32_t set, std::vector<TensorId> tensors);
  void forget_failures();

  const CoordinatorConfig config_;
  SetTable sets_;
  ReadyTable table_;
  PlanCache plans_;
  StallClock clock_;
  DiagnosisRound diagnosis_;
  std::vector<std::string> warnings_;
  RankSet left_;
  std::vector<int> left_order_;
  std::vector<std::uint64_t> heard_;                // by rank: Down messages that it had applied when it last reported
  std::uint64_t sent_ = 0;                          // Down messages
  std::uint64_t last_removal_ = 0;                  // the Down message that ended a set last
  std::map<TensorName, std::uint64_t> failed_;      // not by all of its ranks: the Down message that says so
  std::vector<DownItem> items_;                     // of the next Down message
  std::vector<Complete> complete_;                  // in the order in which they became so
  std::uint64_t turns_ = 0;                         // tensors that became complete
  std::map<std::uint32_t, Flow> flows_;             // by set
  std::map<TensorName, std::vector<Entry*>> held_;  // by unit: complete, until all of the unit is
  std::map<std::uint32_t, Joins> joins_;            // by set, where some have joined
  std::map<std::uint32_t, std::uint64_t> steps_;    // by set: steps that have ended
  std::map<std::uint32_t, std::size_t> ended_;      // by set: how many of released_ belong to the step that ended
  std::map<std::uint32_t, std::vector<Listed>> released_;  // by set: one by one and stepwise, since the last step end
};

}  // namespace horo
