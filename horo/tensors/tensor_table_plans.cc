// The tensor_table's half of known plans: their tensors are counted as they come, and the last one reports the plan. A
// plan that does not come together is broken: its tensors are reported one by one, until the coordinator dissolves it.

#include <algorithm>

#include "horo/base/check.h"
#include "horo/tensors/tensor_table.h"

namespace horo {

// One more tensor of an active plan is here; the last one reports the plan. Counted at the end: what is counted can be
// taken back, and a plan whose count is full is complete once its event is committed.
void TensorTable::count(Tensor& tensor, std::vector<FilledPlan>& filled) {
  Plan& plan = *tensor.plan;
  if (plan.waiting + 1 == plan.keys.size()) {
    PlanComplete complete{tensor.plan_id, {}};
    for (const Key key : plan.keys) {
      if (tensors_[key].submission.absent) complete.absent.push_back(key);
    }
    if (complete.absent.empty() && !is_packed(plan)) {
      FilledPlan& full = filled.emplace_back(FilledPlan{tensor.plan_id, {}});
      full.items.reserve(plan.keys.size());
      for (const Key key : plan.keys) full.items.push_back(item(key));
    }
    events_.emplace_back(std::move(complete));
  }
  ++plan.waiting;
}

// Nothing is to be packed.
bool TensorTable::is_packed(const Plan& plan) const {
  SideBySide row;
  return std::all_of(plan.keys.begin(), plan.keys.end(),
                     [&](Key key) REQUIRES(mutex_) { return row.add(tensors_[key].submission, tensors_[key].bytes); });
}

// The engine will hear of it.
void TensorTable::commit(const PlanComplete& complete) noexcept {
  Plan& plan = plans_.find(complete.plan)->second;
  plan.waiting = 0;
  for (const Key key : plan.keys) tensors_[key].reported = true;
  hurry();
}

bool TensorTable::nudge(std::span<const Key> keys) {
  MutexLock lock(mutex_);
  for (const Key key : keys) {
    if (key >= tensors_.size()) continue;
    const Tensor& tensor = tensors_[key];
    if (!tensor.work || tensor.reported || tensor.plan == nullptr) continue;
    break_up(*tensor.plan, events_);
    tensor.plan->broken = true;
  }
  hurry();
  return needs_wake();
}

// Whole, or not at all where memory is short.
void TensorTable::break_up(Plan& plan, std::vector<Event>& events) {
  make_room(events, plan.waiting);
  plan.waiting = 0;
  for (const Key key : plan.keys) {
    Tensor& tensor = tensors_[key];
    if (!tensor.work || tensor.reported) continue;
    tensor.reported = true;
    events.emplace_back(Submitted{key, tensor.submission.absent});
  }
}

bool TensorTable::step_end(std::uint32_t set) {
  MutexLock lock(mutex_);
  if (closed_) closed_->raise();
  sets_.find_mine(set);
  make_room(events_, 1 + plans_.size());  // a plan is not used before the engine has been told
  events_.emplace_back(StepEnded{set});
  for (auto& [id, plan] : plans_) {
    const auto busy = [this](Key key) REQUIRES(mutex_) { return tensors_[key].work != nullptr; };
    if (plan.active || tensors_[plan.keys.front()].spec.set != set) continue;
    if (std::any_of(plan.keys.begin(), plan.keys.end(), busy)) continue;
    plan.active = true;
    ++plans_version_;
    for (const Key key : plan.keys) {
      tensors_[key].plan = &plan;
      tensors_[key].plan_id = id;
    }
    events_.emplace_back(PlanActive{id});
  }
  hurry();
  return needs_wake();
}

std::uint64_t TensorTable::plans_version() const {
  MutexLock lock(mutex_);
  return plans_version_;
}

std::vector<BucketPlace> TensorTable::places(std::span<const Key> keys) const {
  MutexLock lock(mutex_);
  std::map<PlanId, std::map<Key, BucketPlace>> by_plan;
  std::vector<BucketPlace> places;
  places.reserve(keys.size());
  for (const Key key : keys) {
    if (key >= tensors_.size() || tensors_[key].plan == nullptr) {
      places.emplace_back();
      continue;
    }
    auto& in_plan = by_plan[tensors_[key].plan_id];
    if (in_plan.empty()) in_plan = layout(*tensors_[key].plan, tensors_[key].plan_id);
    places.push_back(in_plan.at(key));
  }
  return places;
}

std::map<Key, BucketPlace> TensorTable::layout(const Plan& plan, PlanId id) const {
  std::map<Key, BucketPlace> places;
  std::size_t bytes = 0;
  for (const Key key : plan.keys) {
    places[key] = {id, bytes};
    bytes += tensors_[key].bytes;
  }
  for (auto& [key, place] : places) place.bytes = bytes;
  return places;
}

void TensorTable::learn(PlanId plan, const std::vector<Key>& keys) {
  MutexLock lock(mutex_);
  HORO_CHECK(!keys.empty());
  Plan learned;
  learned.keys = keys;
  plans_.insert_or_assign(plan, std::move(learned));  // whole, or not at all where memory is short
}

std::vector<Event> TensorTable::forget_plan(PlanId plan) {
  MutexLock lock(mutex_);
  std::vector<Event> events;
  const auto found = plans_.find(plan);
  if (found == plans_.end()) return events;
  if (found->second.active) {
    ++plans_version_;
    break_up(found->second, events);
    for (const Key key : found->second.keys) tensors_[key].plan = nullptr;
  }
  plans_.erase(found);
  return events;
}

// Who has joined completes no plan any more: what lies in them is reported one by one.
void TensorTable::break_up_plans(std::uint32_t set) {
  for (auto& [id, plan] : plans_) {
    if (!plan.active || plan.waiting == 0 || tensors_[plan.keys.front()].spec.set != set) continue;
    break_up(plan, events_);
    plan.broken = true;
  }
}

}  // namespace horo
