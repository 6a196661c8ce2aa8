#include "controller/step_plans.h"

#include <algorithm>
#include <set>
#include <span>
#include <utility>

#include "controller/bucketer.h"

namespace horo {

void StepPlans::add(Entry& entry, Version& version) {
  const TensorSpec& spec = version.spec;
  const bool everywhere = entry.ready.covers(entry.needs);
  const bool fits = spec.stepwise && spec.kind == CollectiveKind::kAllReduce && version.id && everywhere;
  if (!fits || version.in_step || entry.plan != 0) return;
  version.in_step = true;
  released_[spec.set].push_back({entry.turn, *version.id});
}

void StepPlans::forget_set(std::uint32_t set) {
  released_.erase(set);
  ended_.erase(set);
  steps_.erase(set);
}

std::vector<DefinePlan> StepPlans::define() {
  std::vector<DefinePlan> plans;
  for (const auto& [set, released] : std::exchange(ended_, {})) {
    if (tables_.sets.find(set) == nullptr) continue;
    ++steps_[set];
    const std::vector<TensorId> step = take_step(set, released);
    if (tables_.left.meets(tables_.members(set)) || tables_.joins.ranks(set) != nullptr) continue;
    define_step(set, step, plans);
  }
  return plans;
}

// Removes and returns the tensors of the set's step that ended, in the order in which they became complete, which
// differs from the order of release where priorities differ. Of a name with two specs in one step, the first.
std::vector<TensorId> StepPlans::take_step(std::uint32_t set, std::size_t released) {
  std::vector<TensorId> step;
  std::set<TensorName> names;
  std::vector<StepTensor>& all = released_[set];
  const auto end = all.begin() + static_cast<std::ptrdiff_t>(released);
  std::sort(all.begin(), end, [](const StepTensor& a, const StepTensor& b) { return a.turn < b.turn; });
  for (const auto& [turn, id] : std::span(all.begin(), end)) {
    const VersionRef ref = *tables_.tensors.version_of(id);
    ref.entry->versions[ref.version].in_step = false;
    const bool fits = ref.entry->plan == 0 && steps_[set] > ref.entry->apart_until;
    if (fits && names.insert(ref.entry->name).second) step.push_back(id);
  }
  all.erase(all.begin(), end);
  return step;
}

void StepPlans::define_step(std::uint32_t set, const std::vector<TensorId>& step, std::vector<DefinePlan>& plans) {
  std::vector<Fusible> tensors;
  for (const TensorId id : step) {
    const VersionRef ref = *tables_.tensors.version_of(id);
    tensors.push_back({&ref.entry->versions[ref.version].spec});
  }
  const BucketLimits limits{config_.bucket_bytes, config_.credit_bytes / 2, config_.least_bucket_bytes,
                            config_.elastic};
  for (const auto& bucket : make_buckets(tensors, limits)) {
    if (tables_.plans.full()) return;
    const TensorSpec& first = *tensors[bucket.front()].spec;
    if (!first.unit.empty() && bucket.size() != static_cast<std::size_t>(first.unit_size)) continue;
    std::vector<TensorId> ids;
    for (const std::size_t at : bucket) ids.push_back(step[at]);
    plans.push_back(define_plan(set, std::move(ids)));
  }
}

DefinePlan StepPlans::define_plan(std::uint32_t set, std::vector<TensorId> tensors) {
  const PlanId id = tables_.plans.define(set, tensors);
  Plan& plan = *tables_.plans.find(id);
  plan.priority = INT32_MIN;
  for (const TensorId tensor : tensors) {
    const VersionRef ref = *tables_.tensors.version_of(tensor);
    const TensorSpec& spec = ref.entry->versions[ref.version].spec;
    plan.priority = std::max(plan.priority, spec.priority);
    plan.bytes += spec.bytes();
    if (spec.round_stream != 0) plan.rounds.try_emplace(spec.round_stream);
    ref.entry->plan = id;
    if (!ref.entry->ready.empty()) ++plan.gathering;
  }
  return {id, std::move(tensors)};
}

}  // namespace horo
