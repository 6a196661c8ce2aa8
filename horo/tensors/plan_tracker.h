// PlanTracker: the known plans as the tensor table uses them. It counts the submitted tensors of each active plan; the
// submission that completes a plan is the only one that the engine receives an event for. A plan that a caller waits
// for before it is complete is broken: its tensors are reported one by one until the coordinator dissolves it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <vector>

#include "horo/tensors/name_table.h"
#include "horo/tensors/submission_queue.h"

namespace horo {

// The place of a tensor in the bucket of a known plan.
struct BucketPlace {
  PlanId plan = 0;  // not reused in later epochs. 0: the tensor is in no active plan of this rank; other members are 0
  std::size_t offset = 0;
  std::size_t bytes = 0;  // of the bucket
};

struct TrackedPlan {
  std::vector<Key> keys;    // in bucket order
  std::size_t waiting = 0;  // submitted and not reported; keys.size(): the plan is complete
  bool active = false;
  bool broken = false;
};

// Has no lock of its own: the tensor table calls it under its mutex.
class PlanTracker {
 public:
  explicit PlanTracker(NameTable& tensors) : tensors_(tensors) {}

  // A plan that the coordinator defined. It is used from the next end_step() on.
  void add(PlanId plan, const std::vector<Key>& keys);
  // Adds StepEnded, and PlanActive for each plan of the set that becomes active because none of its tensors is in
  // flight. Throws (memory) before anything changes.
  void end_step(std::uint32_t set, SubmissionBatch& batch);
  // Forgets the plan. Its unreported submissions are added to the batch.
  void remove(PlanId plan, SubmissionBatch& batch);

  // One more tensor of an active plan was submitted. The last one adds the PlanComplete event and, if the plan has to
  // be packed, a FilledPlan. Throws (memory) before anything is counted.
  void count(TensorRecord& record, SubmissionBatch& batch, std::vector<FilledPlan>& filled);
  void uncount(TensorRecord& record) noexcept { --record.plan->waiting; }
  // The PlanComplete event of this plan stays in the queue.
  void commit(PlanId plan) noexcept;

  // Breaks the plan of this tensor if its submission is not reported.
  void break_plan_of(TensorRecord& record, SubmissionBatch& batch);
  // Breaks every incomplete plan of the set.
  void break_plans(std::uint32_t set, SubmissionBatch& batch);
  // Breaks every incomplete plan to which a tensor of the round stream was submitted.
  void break_plans(const RoundStream& stream, SubmissionBatch& batch);

  // Forgets all plans, at the end of an epoch.
  void clear() noexcept;

  std::vector<BucketPlace> places(std::span<const Key> keys) const;
  // Changes whenever places() may change.
  std::uint64_t version() const { return version_; }

 private:
  bool waits_for_plan(Key key, const RoundStream& stream) const;
  void report_waiting(TrackedPlan& plan, SubmissionBatch& batch);
  ItemList items_of(const TrackedPlan& plan) const;
  std::map<Key, BucketPlace> layout(const TrackedPlan& plan, PlanId id) const;
  bool is_of_set(const TrackedPlan& plan, std::uint32_t set) const { return tensors_.at(plan.keys.front()).set == set; }

  NameTable& tensors_;
  std::map<PlanId, TrackedPlan> plans_;
  PlanId highest_ = 0;  // of this epoch, which counts from 1
  PlanId before_ = 0;   // plans of earlier epochs
  std::uint64_t version_ = 0;
};

}  // namespace horo
