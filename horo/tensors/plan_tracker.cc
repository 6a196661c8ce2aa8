#include "horo/tensors/plan_tracker.h"

#include <algorithm>
#include <utility>

#include "horo/base/check.h"

namespace horo {

// Complete, or unchanged where memory is short.
void PlanTracker::add(PlanId plan, const std::vector<Key>& keys) {
  HORO_CHECK(!keys.empty());
  TrackedPlan added;
  added.keys = keys;
  highest_ = std::max(highest_, plan);
  plans_.insert_or_assign(plan, std::move(added));
}

void PlanTracker::end_step(std::uint32_t set, SubmissionBatch& batch) {
  reserve_more(batch.events, 1 + plans_.size());
  batch.events.emplace_back(StepEnded{set});
  for (auto& [id, plan] : plans_) {
    const auto is_in_flight = [this](Key key) { return tensors_.at(key).is_in_flight(); };
    if (plan.active || !is_of_set(plan, set)) continue;
    if (std::any_of(plan.keys.begin(), plan.keys.end(), is_in_flight)) continue;
    plan.active = true;
    ++version_;
    for (const Key key : plan.keys) {
      tensors_.at(key).plan = &plan;
      tensors_.at(key).plan_id = id;
    }
    batch.events.emplace_back(PlanActive{id});
  }
}

void PlanTracker::remove(PlanId plan, SubmissionBatch& batch) {
  const auto found = plans_.find(plan);
  if (found == plans_.end()) return;
  if (found->second.active) {
    report_waiting(found->second, batch);
    ++version_;
    for (const Key key : found->second.keys) tensors_.at(key).plan = nullptr;
  }
  plans_.erase(found);
}

void PlanTracker::count(TensorRecord& record, SubmissionBatch& batch, std::vector<FilledPlan>& filled) {
  TrackedPlan& plan = *record.plan;
  if (plan.waiting + 1 == plan.keys.size()) {
    PlanComplete complete{record.plan_id, {}};
    for (const Key key : plan.keys) {
      if (tensors_.at(key).item.submission.absent) complete.absent.push_back(key);
    }
    const bool has_all = complete.absent.empty();
    const ItemList items = items_of(plan);
    batch.report(std::move(complete), items);
    const bool has_bytes = std::any_of(items->begin(), items->end(), [](const Item& item) { return item.bytes > 0; });
    if (has_all && has_bytes && contiguous_memory(*items) == nullptr) filled.push_back({record.plan_id, items});
  }
  ++plan.waiting;
}

ItemList PlanTracker::items_of(const TrackedPlan& plan) const {
  const auto items = std::make_shared<std::vector<Item>>();
  items->reserve(plan.keys.size());
  for (const Key key : plan.keys) items->push_back(tensors_.at(key).item);
  return items;
}

void PlanTracker::commit(PlanId id) noexcept {
  TrackedPlan& plan = plans_.find(id)->second;
  plan.waiting = 0;
  for (const Key key : plan.keys) tensors_.at(key).reported = true;
}

void PlanTracker::break_plan_of(TensorRecord& record, SubmissionBatch& batch) {
  if (!record.is_in_flight() || record.reported || record.plan == nullptr) return;
  report_waiting(*record.plan, batch);
  record.plan->broken = true;
}

void PlanTracker::break_plans(std::uint32_t set, SubmissionBatch& batch) {
  for (auto& [id, plan] : plans_) {
    if (!plan.active || plan.waiting == 0 || !is_of_set(plan, set)) continue;
    report_waiting(plan, batch);
    plan.broken = true;
  }
}

void PlanTracker::break_plans(const RoundStream& stream, SubmissionBatch& batch) {
  for (auto& [id, plan] : plans_) {
    if (!plan.active || plan.waiting == 0 || !is_of_set(plan, stream.set)) continue;
    const auto waits = [&](Key key) { return waits_for_plan(key, stream); };
    if (std::none_of(plan.keys.begin(), plan.keys.end(), waits)) continue;
    report_waiting(plan, batch);
    plan.broken = true;
  }
}

bool PlanTracker::waits_for_plan(Key key, const RoundStream& stream) const {
  const TensorRecord& record = tensors_.at(key);
  return record.is_in_flight() && !record.reported && record.spec.round_stream == stream.number;
}

// All of them, or none where memory is short.
void PlanTracker::report_waiting(TrackedPlan& plan, SubmissionBatch& batch) {
  batch.reserve(plan.waiting);
  plan.waiting = 0;
  for (const Key key : plan.keys) {
    TensorRecord& record = tensors_.at(key);
    if (!record.is_in_flight() || record.reported) continue;
    record.reported = true;
    batch.report(record.item);
  }
}

void PlanTracker::clear() noexcept {
  for (const auto& [id, plan] : plans_) {
    for (const Key key : plan.keys) tensors_.at(key).plan = nullptr;
  }
  plans_.clear();
  before_ += std::exchange(highest_, 0);
  ++version_;
}

std::vector<BucketPlace> PlanTracker::places(std::span<const Key> keys) const {
  std::map<PlanId, std::map<Key, BucketPlace>> by_plan;
  std::vector<BucketPlace> places;
  places.reserve(keys.size());
  for (const Key key : keys) {
    if (!tensors_.has(key) || tensors_.at(key).plan == nullptr) {
      places.emplace_back();
      continue;
    }
    const TensorRecord& record = tensors_.at(key);
    auto& in_plan = by_plan[record.plan_id];
    if (in_plan.empty()) in_plan = layout(*record.plan, before_ + record.plan_id);
    places.push_back(in_plan.at(key));
  }
  return places;
}

std::map<Key, BucketPlace> PlanTracker::layout(const TrackedPlan& plan, PlanId id) const {
  std::map<Key, BucketPlace> places;
  std::size_t bytes = 0;
  for (const Key key : plan.keys) {
    places[key] = {id, bytes};
    bytes += tensors_.at(key).item.bytes;
  }
  for (auto& [key, place] : places) place.bytes = bytes;
  return places;
}

}  // namespace horo
