// TensorTable: the declared tensors of a session, those in flight, and the queue of submissions between the callers and
// the engine. A tensor is visited once when it is submitted and once when it is retired; in between, its item travels
// with the events.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "horo/base/config.h"
#include "horo/base/failure.h"
#include "horo/base/mutex.h"
#include "horo/base/time.h"
#include "horo/base/timeline.h"
#include "horo/tensors/item.h"
#include "horo/tensors/known_sets.h"
#include "horo/tensors/name_table.h"
#include "horo/tensors/plan_tracker.h"
#include "horo/tensors/registry.h"
#include "horo/tensors/round_marks.h"
#include "horo/tensors/submission_queue.h"

namespace horo {

// Any thread may call any function. None blocks but wait_for_quiet().
class TensorTable {
 public:
  // The registry outlives the table.
  // timeline: of the times at which tensors are submitted; null: none. It outlives the table.
  TensorTable(const Config& config, const Registry& registry, const Timeline* timeline = nullptr);

  // ---- Callers.

  // The key of the spec; equal specs have one key, which is valid until it is undeclared as often as it was declared.
  // See NameTable::resolve for names. Throws std::invalid_argument for a spec that is not valid in its process set, or
  // the failure given to close().
  Key declare(const TensorSpec& spec);
  // The caller uses these keys no more; what is in flight goes on. Throws std::invalid_argument, and changes nothing,
  // if one of them is not declared.
  void undeclare(std::span<const Key> keys);

  struct Accepted {
    std::vector<std::shared_ptr<Work>> works;
    std::vector<FilledPlan> filled;  // for Engine::prepack()
    bool wake = false;               // the engine sleeps and no caller has woken it
  };
  // All submissions are accepted or none, also where memory runs out (tensors may have been declared then). Throws
  // std::invalid_argument (null buffer, name in flight), or the failure given to close().
  Accepted submit(std::span<const Submission> submissions);
  // declare() and submit(); keys are not read. A call that throws does not increment the counter of unnamed calls.
  Accepted submit(const TensorSpec& spec, Submission submission);
  // Declares and submits the tensors of one unit, all of one process set. An empty unit name is taken from the counter
  // of unnamed units. Tensors without a name are called <unit>_<i>of<count>.
  Accepted submit_unit(const std::string& unit, std::vector<TensorSpec> specs, std::vector<Submission> submissions);
  // Submits a request (is_request) of these fields.
  Accepted request(TensorSpec spec);

  // In an elastic job ranks change between two calls of a caller. The caller knows the ranks of this epoch from now on:
  // what it submits after that means these. What it has submitted before, and that names ranks that are others now, is
  // lost (see Submitted).
  void see(std::uint32_t epoch);
  std::uint32_t seen_epoch() const;

  SetInfo set_info(std::uint32_t set) const;
  // Throws std::invalid_argument unless this rank is a member of the set, or the failure given to close().
  void check_member(std::uint32_t set) const;

  // The caller waits for these keys: plans of theirs that are incomplete here are reported tensor by tensor. True: wake
  // the engine.
  bool nudge(std::span<const Key> keys);

  // The caller ended a step: plans with no tensor in flight become active. True: wake the engine. Throws
  // std::invalid_argument unless this rank is a member of the set.
  bool step_end(std::uint32_t set);
  // Later submissions of tensors of the stream belong to this round. The engine takes it with the next submission.
  // Throws std::invalid_argument for stream 0, or unless this rank is a member of the set.
  void begin_round(const RoundBegun& begun);
  // The other tensors of the present round are not submitted. True: wake the engine. Throws as begin_round().
  bool fail_round(RoundFailed failed);
  std::vector<BucketPlace> places(std::span<const Key> keys) const;
  // Changes whenever places() may change.
  std::uint64_t plans_version() const;

  // ---- The engine.

  SubmissionBatch take();
  // Blocks while submissions arrive that no caller waits for, without a pause as long as `quiet`, at most until
  // `until`: the engine takes a burst of submissions in few batches.
  void wait_for_quiet(TimePoint until, Duration quiet);
  // The engine is about to sleep; the next submission wakes it. False: the queue is not empty.
  bool begin_sleep();
  void add_plan(PlanId plan, const std::vector<Key>& keys);
  // Forgets the plan. Its submissions that were not reported are queued, behind the begin of their round: take()
  // follows.
  void remove_plan(PlanId plan);

  // Submissions to a set are refused before add_set() and after remove_set().
  void add_set(SetInfo set);
  void remove_set(std::uint32_t set);

  // All members have joined the set. They may have made different numbers of unnamed calls, so these are numbered from
  // 0 again.
  void reset_unnamed(std::uint32_t set);

  // The collectives of these items have ended: their tensors may be submitted again. Precedes the end of their Works.
  // In between the caller holds the only references to the Works, so it must not throw before it ends them.
  void retire(std::span<const Item> items) noexcept;
  // The same before Works are issued, which the table remembers until they have ended. Throws (memory) before it
  // retires any.
  void retire_issued(const ItemList& items);

  // Begins an epoch of the same ranks: no plan is known, the engine knows no tensor, and take() returns everything that
  // is in flight, in the order of submission. No lane of the last epoch runs. Retires `ended`, the rebuild that ended
  // it. False: the table was closed before.
  bool begin_epoch(const Item& ended);
  // The same for an epoch of other ranks. What names a rank whose number has changed is reported as lost. Returns,
  // retired, what belongs to sets that have lost a member and do not shrink; the caller fails these Works.
  // border: the request at which the last epoch has ended on all ranks of the new one, or null; it is among them.
  std::vector<Item> begin_epoch(const RankChange& change, const Work* border = nullptr);
  // Begins the first epoch of a rank that joins a running job, and has made no call. members: MemberIds, by rank.
  void join(const RankChange& change, const JoinState& state, std::span<const std::uint32_t> members);
  // What a rank that joins at this border gets.
  JoinState for_joiners(std::span<const std::uint32_t> members, Key border) const;

  // Submitted and not ended; of issued Works too, in a static job.
  bool has_in_flight();
  // The issued Works that have not ended will fail: what devices write from now on is no result. close(), fail_all()
  // and end_failed() follow. In a static job.
  void hold_issued() noexcept;
  // The issued Works that have not ended.
  std::vector<ItemList> issued();
  // The number of tensors in flight that are not issued, and the name of the one that was submitted first. Visits all
  // declared tensors.
  struct InFlight {
    std::size_t tensors = 0;
    std::string oldest;
  };
  InFlight in_flight() const;

  // From now on submit() throws `failure`, or that of an earlier close(). True: submissions are in flight, which lanes
  // may still retire and end.
  bool close(FailurePtr failure) noexcept;
  // After close(), when no lane runs: every Work in flight fails with the failure given to close(). Those of devices
  // end in end_failed(), when devices write no results any more. True: there are such.
  bool fail_all() noexcept;
  void end_failed() noexcept;

 private:
  void check_open() const REQUIRES(mutex_);
  void check_not_in_flight(const TensorSpec& spec) const REQUIRES(mutex_);
  [[noreturn]] void refuse_in_flight(const TensorSpec& spec) const REQUIRES(mutex_);
  const SetInfo& set_for_submit(const TensorSpec& spec) const REQUIRES(mutex_);
  void check_unit(const std::string& unit, std::vector<TensorSpec>& specs, std::span<const Submission> submissions)
      REQUIRES(mutex_);
  void check(const Submission& submission) const REQUIRES(mutex_);
  void mark_names(std::span<const Submission> submissions) REQUIRES(mutex_);
  Accepted accept(std::span<const Submission> submissions) REQUIRES(mutex_);
  void begin(const Submission& submission, const std::set<ScopedName>& lost_units, Accepted& result) REQUIRES(mutex_);
  void report_stream(const RoundStream& stream) REQUIRES(mutex_);
  void retire_one(const Item& item) noexcept REQUIRES(mutex_);
  void forget_ended() noexcept REQUIRES(mutex_);
  void fail_in_flight(TensorRecord& record) noexcept REQUIRES(mutex_);
  std::vector<Item> report_again(const Work* ended, const RankChange* change) REQUIRES(mutex_);
  bool is_lost(const TensorSpec& spec) const REQUIRES(mutex_);
  std::set<ScopedName> lost_units(std::span<const Submission> submissions) const REQUIRES(mutex_);
  static ScopedName unit_of(const TensorSpec& spec);
  bool is_of_lost_set(const TensorSpec& spec) const REQUIRES(mutex_);
  static const std::vector<int>* numbers_in(std::uint32_t set, const RankChange& change);
  static bool can_run_again(const TensorSpec& spec, const std::vector<int>* numbers, bool has_joined);
  void undo(std::span<const Submission> submissions, std::size_t begun) noexcept REQUIRES(mutex_);
  void request_flush() noexcept REQUIRES(mutex_);

  Config config_;  // its rank and size change with the epoch
  const Registry& registry_;
  const Timeline* const timeline_;
  mutable Mutex mutex_;
  CondVar flush_requested_;
  KnownSets sets_ GUARDED_BY(mutex_);
  NameTable tensors_ GUARDED_BY(mutex_);
  PlanTracker plans_ GUARDED_BY(mutex_);
  SubmissionQueue queue_ GUARDED_BY(mutex_);
  RoundMarks rounds_ GUARDED_BY(mutex_);
  std::uint32_t epoch_ GUARDED_BY(mutex_) = 0;
  std::uint32_t seen_epoch_ GUARDED_BY(mutex_) = 0;
  std::deque<RankChange> unseen_ GUARDED_BY(mutex_);  // since the epoch that the caller has seen
  std::uint64_t serial_ GUARDED_BY(mutex_) = 0;       // of the last submission
  std::size_t in_flight_ GUARDED_BY(mutex_) = 0;      // tensors that are not retired
  std::deque<ItemList> issued_ GUARDED_BY(mutex_);    // in this order; of the first ones some may have ended
  FailurePtr closed_ GUARDED_BY(mutex_);
};

}  // namespace horo
