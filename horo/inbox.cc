#include "horo/inbox.h"

#include <algorithm>
#include <stdexcept>

#include "horo/base/check.h"
#include "horo/spec_check.h"

namespace horo {

Inbox::Inbox(const Config& config) : config_(config) {}

Key Inbox::declare(const TensorSpec& spec) {
  check_spec(spec, config_);
  MutexLock lock(mutex_);
  if (closed_) closed_->raise();
  TensorSpec named = spec;
  if (named.name.empty()) {
    check_room(spec);  // before the number is used up: the other ranks count on it
    const std::uint64_t sequence = unnamed_[{spec.set, spec.channel, spec.kind}]++;
    named.name = std::string(name_of(spec.kind)) + "#" + std::to_string(sequence);
  }
  const NameKey name{spec.set, spec.channel, named.name};
  if (const auto found = names_.find(name); found != names_.end()) {
    for (const Key key : found->second.keys) {
      if (tensors_[key].spec == named) return key;
    }
  }
  check_room(named);
  return add(named, names_[name]);
}

void Inbox::check_room(const TensorSpec& spec) const {
  if (tensors_.size() < config_.max_tensors || (spec.once && !free_keys_.empty())) return;
  const std::string what = spec.name.empty() ? "a tensor without a name" : "tensor '" + spec.name + "'";
  throw std::invalid_argument(what + ": " + std::to_string(tensors_.size()) +
                              " tensors are declared already, no more are allowed (HORO_MAX_TENSORS)");
}

Key Inbox::add(const TensorSpec& spec, Name& name) {
  Key key = static_cast<Key>(tensors_.size());
  if (spec.once && !free_keys_.empty()) {
    key = free_keys_.back();
    free_keys_.pop_back();
  } else {
    tensors_.emplace_back();
  }
  tensors_[key] = Tensor{};
  tensors_[key].spec = spec;
  tensors_[key].name = &name;
  name.keys.push_back(key);
  declared_.push_back(key);
  return key;
}

void Inbox::check(std::span<const Submission> submissions) {
  if (closed_) closed_->raise();
  for (const Submission& s : submissions) {
    if (s.key >= tensors_.size() || tensors_[s.key].name == nullptr) {
      throw std::invalid_argument("key " + std::to_string(s.key) + " was not declared in this session");
    }
    check_buffers(tensors_[s.key].spec, config_, s.in, s.out, s.absent);
  }
  // Marks the names as it goes, so that a name that comes twice in the batch is found too; undone on an error.
  std::size_t marked = 0;
  for (; marked < submissions.size(); ++marked) {
    Name& name = *tensors_[submissions[marked].key].name;
    if (name.in_flight) break;
    name.in_flight = true;
  }
  if (marked == submissions.size()) return;
  const TensorSpec& spec = tensors_[submissions[marked].key].spec;
  for (std::size_t i = 0; i < marked; ++i) tensors_[submissions[i].key].name->in_flight = false;
  throw std::invalid_argument(std::string(name_of(spec.kind)) + " of tensor '" + spec.name +
                              "': a tensor of that name is in flight already; wait for it, or choose another name");
}

Inbox::Put Inbox::put(std::span<const Submission> submissions) {
  Put result;
  result.works.reserve(submissions.size());
  MutexLock lock(mutex_);
  check(submissions);
  for (const Submission& s : submissions) {
    Tensor& tensor = tensors_[s.key];
    tensor.work = std::make_shared<Work>(s.key);
    tensor.submission = s;
    tensor.reported = false;
    result.works.push_back(tensor.work);
    if (tensor.plan == nullptr || tensor.plan->broken) {
      report(s.key, tensor);
    } else {
      count(tensor, result.filled);
    }
  }
  in_flight_ += submissions.size();
  result.wake = needs_wake();
  return result;
}

bool Inbox::has_in_flight() const {
  MutexLock lock(mutex_);
  return in_flight_ > 0;
}

void Inbox::report(Key key, Tensor& tensor) {
  tensor.reported = true;
  events_.emplace_back(Submitted{key, tensor.submission.absent});
}

// One more tensor of an active plan is here; the last one reports the plan.
void Inbox::count(Tensor& tensor, std::vector<FilledPlan>& filled) {
  Plan& plan = *tensor.plan;
  if (++plan.waiting < plan.keys.size()) return;
  plan.waiting = 0;
  PlanComplete complete{tensor.plan_id, {}};
  FilledPlan full{tensor.plan_id, {}};
  full.items.reserve(plan.keys.size());
  for (const Key key : plan.keys) {
    tensors_[key].reported = true;
    if (tensors_[key].submission.absent) complete.absent.push_back(key);
    full.items.push_back(item(key));
  }
  if (complete.absent.empty()) filled.push_back(std::move(full));
  events_.emplace_back(std::move(complete));
}

bool Inbox::nudge(std::span<const Key> keys) {
  MutexLock lock(mutex_);
  for (const Key key : keys) {
    if (key >= tensors_.size()) continue;
    const Tensor& tensor = tensors_[key];
    if (!tensor.work || tensor.reported || tensor.plan == nullptr) continue;
    tensor.plan->broken = true;
    break_up(*tensor.plan, events_);
  }
  return needs_wake();
}

void Inbox::break_up(Plan& plan, std::vector<Event>& events) {
  plan.waiting = 0;
  for (const Key key : plan.keys) {
    Tensor& tensor = tensors_[key];
    if (!tensor.work || tensor.reported) continue;
    tensor.reported = true;
    events.emplace_back(Submitted{key, tensor.submission.absent});
  }
}

bool Inbox::step_end(std::uint32_t set) {
  MutexLock lock(mutex_);
  if (closed_) closed_->raise();
  events_.emplace_back(StepEnded{set});
  for (auto& [id, plan] : plans_) {
    const auto busy = [this](Key key) REQUIRES(mutex_) { return tensors_[key].work != nullptr; };
    if (plan.active || tensors_[plan.keys.front()].spec.set != set) continue;
    if (std::any_of(plan.keys.begin(), plan.keys.end(), busy)) continue;
    plan.active = true;
    for (const Key key : plan.keys) {
      tensors_[key].plan = &plan;
      tensors_[key].plan_id = id;
    }
    events_.emplace_back(PlanActive{id});
  }
  return needs_wake();
}

Inbox::Batch Inbox::take() {
  MutexLock lock(mutex_);
  woken_ = false;
  Batch batch;
  for (const Key key : declared_) batch.declared.emplace_back(key, &tensors_[key].spec);
  declared_.clear();
  batch.events.swap(events_);
  return batch;
}

void Inbox::learn(PlanId plan, const std::vector<Key>& keys) {
  MutexLock lock(mutex_);
  HORO_CHECK(!keys.empty());
  plans_[plan].keys = keys;
}

std::vector<Event> Inbox::forget_plan(PlanId plan) {
  MutexLock lock(mutex_);
  std::vector<Event> events;
  const auto found = plans_.find(plan);
  if (found == plans_.end()) return events;
  if (found->second.active) {
    break_up(found->second, events);
    for (const Key key : found->second.keys) tensors_[key].plan = nullptr;
  }
  plans_.erase(found);
  return events;
}

Item Inbox::item(Key key) const {
  const Tensor& tensor = tensors_[key];
  return {&tensor.spec, tensor.submission, tensor.work};
}

std::vector<Item> Inbox::items(std::span<const Key> keys) const {
  MutexLock lock(mutex_);
  std::vector<Item> items;
  items.reserve(keys.size());
  for (const Key key : keys) {
    HORO_CHECK(key < tensors_.size() && tensors_[key].work != nullptr);
    items.push_back(item(key));
  }
  return items;
}

void Inbox::settle(std::span<const Key> keys) {
  MutexLock lock(mutex_);
  in_flight_ -= keys.size();
  for (const Key key : keys) {
    Tensor& tensor = tensors_[key];
    tensor.work = nullptr;
    tensor.name->in_flight = false;
    if (!tensor.spec.once) continue;
    std::erase(tensor.name->keys, key);
    if (tensor.name->keys.empty()) names_.erase({tensor.spec.set, tensor.spec.channel, tensor.spec.name});
    tensor.name = nullptr;
    free_keys_.push_back(key);
  }
}

std::vector<std::shared_ptr<Work>> Inbox::close(FailurePtr failure) {
  MutexLock lock(mutex_);
  std::vector<std::shared_ptr<Work>> works;
  works.reserve(in_flight_);  // none may be lost for want of memory
  if (!closed_) closed_ = std::move(failure);
  for (Tensor& tensor : tensors_) {
    if (tensor.work) works.push_back(std::move(tensor.work));
    tensor.work = nullptr;
  }
  in_flight_ = 0;
  events_.clear();
  return works;
}

// True once until the engine takes: the others that come meanwhile are taken along.
bool Inbox::needs_wake() {
  if (woken_ || events_.empty()) return false;
  woken_ = true;
  return true;
}

}  // namespace horo
