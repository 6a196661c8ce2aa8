// Leader: rank 0's half of the coordinator. Takes the ranks' reports, decides, and sends its decisions to all ranks in
// one ordered stream: take() checks a report and records it (agreement.h); complete tensors and plans wait in the
// release queue (release_queue.h); flush() releases them, defines plans (step_plans.h) and returns the next message.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "controller/agreement.h"
#include "controller/forgetting.h"
#include "controller/leader_tables.h"
#include "controller/messages.h"
#include "controller/step_plans.h"
#include "controller/stream_watermarks.h"

namespace horo {

// Not copyable or movable: its parts hold references to one another.
class Leader {
 public:
  // sets: the process sets that exist at the beginning of the epoch.
  Leader(const CoordinatorConfig& config, SetTable sets);
  Leader(const Leader&) = delete;
  Leader& operator=(const Leader&) = delete;

  // A rank's report. Throws ProtocolError, which names the rank, if no correct member would send it.
  void take(int from, const UpMessage& message, TimePoint now);
  // At the next flush, the tensors that were released between the last step end and now become known plans.
  void step_ended(std::uint32_t set) { step_plans_.step_ended(set); }
  void rank_left(int rank, TimePoint now);
  // Warns about tensors that wait, and fails those that have waited too long.
  void timer_fired(TimePoint now) { agreement_.timer_fired(now); }
  // Figures of other ranks since the last call.
  std::vector<OtherFigures> take_figures() { return std::exchange(figures_, {}); }
  void set_way(int rank, Duration way) { ways_[static_cast<std::size_t>(rank)] = way; }
  // The answers of the ranks are asked for; later, take_explanation() returns the answer to the last question.
  void asked_why(const AskedWhy& event, TimePoint now) {
    agreement_.stalls().asked_why(event);
    agreement_.timer_fired(now);
  }
  std::optional<Explain> take_explanation(TimePoint now) { return agreement_.stalls().take_explanation(now); }
  // The warnings since the last call, for this rank's log.
  std::vector<std::string> take_warnings() { return agreement_.stalls().take_warnings(); }

  // The next message to all ranks; nullopt if there is nothing to send.
  std::optional<DownMessage> flush(TimePoint now);

  // When timer_fired() must be called next.
  std::optional<TimePoint> due() const { return agreement_.stalls().due(); }
  bool has_left(int rank) const { return tables_.left.contains(rank); }
  // The times at which each rank had each tensor ready, for the tensors that became ready on their last rank at
  // from(their set) or later.
  std::vector<ReadyTime> ready_times(const std::function<TimePoint(std::uint32_t)>& from) const;

 private:
  // Reports.
  void take_request(int from, const Request& request, TimePoint now);
  void take_lost(int from, const TensorName& name);
  void take_number(int from, TensorId id, bool absent, TimePoint now);
  void take_tensor(int from, VersionRef ref, bool absent, TimePoint now);
  void take_plan(int from, PlanId id, const std::vector<std::uint32_t>& absent_slots, TimePoint now);
  void take_plan_tensors(int from, const Plan& plan, const std::vector<std::uint32_t>& absent_slots, TimePoint now);
  void take_rounds(int from, const std::vector<RoundBegun>& rounds);
  void take_failed_rounds(int from, const std::vector<RoundFailed>& failed_rounds, TimePoint now);
  void take_join(int from, const TensorSpec& spec, TimePoint now);
  Plan& plan_of(int from, PlanId id);
  bool is_stale(int from, std::uint32_t set) const;
  void check_member(int from, std::uint32_t set, const std::string& name) const;
  void check_in_set(int from, std::uint32_t set, const char* what) const;
  bool crosses_failure(int from, const Plan& plan) const;

  // Process sets and joins (leader_sets.cc).
  void define_set(Entry& entry);
  std::string refusal_of_set(const TensorSpec& spec, const std::vector<int>& ranks) const;
  void end_set(Entry& entry);
  void end_joins();
  void fail_lost_join(std::uint32_t set);
  void end_epoch(Entry& entry, TimePoint now);

  // Releases.
  void release_complete(TimePoint now);
  void release_alone(Entry& entry, std::vector<Entry*>& ends, TimePoint now);
  void release_end(Entry& end, TimePoint now);
  void release_bucket(const std::vector<Entry*>& entries, std::vector<int> absent_ranks, TimePoint now);
  void release_plan(PlanId id, TimePoint now);
  void skip(Entry& entry);

  const CoordinatorConfig config_;
  LeaderTables tables_;
  StreamWatermarks progress_;
  StepPlans step_plans_;
  std::vector<DownItem> items_;  // of the next message
  Agreement agreement_;
  Forgetting forgetting_;
  std::vector<OtherFigures> figures_;
  std::vector<Duration> ways_;  // by rank: of its messages to this one; 0: of this host, or not known
  TimePoint ready_;             // when the last tensor of the report that is taken was ready
  bool is_over_ = false;        // the epoch has ended: no item follows
};

}  // namespace horo
