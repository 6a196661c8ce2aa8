// What is complete becomes releases, in the order in which it became so; what a step released becomes known plans.
#include <algorithm>
#include <utility>

#include "controller/bucketer.h"
#include "controller/leader.h"

namespace horo {
namespace {

// A tensor whose plans do not come together this often is better off alone.
constexpr int kMaxDissolved = 3;

Entry* agreed_everywhere(const Waiting& complete) {
  Entry* const* entry = std::get_if<Entry*>(&complete);
  return entry != nullptr && ReadyTable::agreed(**entry) != nullptr && (*entry)->absent.empty() ? *entry : nullptr;
}

}  // namespace

void Leader::release_complete() {
  std::vector<Entry*> fusible;
  std::vector<const TensorSpec*> specs;
  std::vector<bool> is_fusible;
  for (const Waiting& complete : complete_) {
    Entry* entry = agreed_everywhere(complete);
    is_fusible.push_back(entry != nullptr);
    if (entry == nullptr) continue;
    fusible.push_back(entry);
    specs.push_back(&ReadyTable::agreed(*entry)->spec);
  }
  const auto buckets = make_buckets(specs, config_.bucket_bytes);
  auto bucket = buckets.begin();
  std::size_t position = 0;  // in fusible
  for (std::size_t i = 0; i < complete_.size(); ++i) {
    if (!is_fusible[i]) {
      const PlanId* id = std::get_if<PlanId>(&complete_[i]);
      id != nullptr ? release_plan(*id) : release_alone(*std::get<Entry*>(complete_[i]));
    } else if (position++; bucket != buckets.end() && bucket->front() == position - 1) {
      std::vector<Entry*> entries;
      for (const std::size_t at : *bucket++) entries.push_back(fusible[at]);
      release_bucket(entries, {});
    }
  }
  complete_.clear();
}

void Leader::release_alone(Entry& entry) {
  if (ReadyTable::agreed(entry) == nullptr) return fail(entry, mismatch_text(ReadyTable::said(entry)));
  if (entry.absent.full()) return skip(entry);
  release_bucket({&entry}, entry.absent.ranks());
}

void Leader::release_bucket(const std::vector<Entry*>& entries, std::vector<int> absent_ranks) {
  ReleaseTensors item{{}, std::move(absent_ranks)};
  for (Entry* entry : entries) {
    Version& version = *ReadyTable::agreed(*entry);
    item.tensors.push_back(table_.refer(*entry, version));
    list(*entry, version);
    finish(*entry);
  }
  items_.emplace_back(std::move(item));
}

void Leader::skip(Entry& entry) {
  TensorRef ref = table_.refer(entry, *ReadyTable::agreed(entry));
  finish(entry);
  if (items_.empty() || !std::holds_alternative<SkipTensors>(items_.back())) items_.emplace_back(SkipTensors{});
  std::get<SkipTensors>(items_.back()).tensors.push_back(std::move(ref));
}

void Leader::release_plan(PlanId id) {
  Plan& plan = *plans_.find(id);
  items_.emplace_back(ReleasePlan{id, plan.exceptions()});
  plan.complete_since = plan.since;
  plan.clear();
}

// Notes a released tensor that may be in a plan from the next step end on.
void Leader::list(const Entry& entry, Version& version) {
  const bool fits = version.spec.stepwise && version.spec.kind == CollectiveKind::kAllReduce && version.id;
  if (!fits || version.listed || entry.plan != 0 || entry.dissolved >= kMaxDissolved) return;
  version.listed = true;
  released_[version.spec.set].push_back(*version.id);
}

// The tensors of the set's step that ended, in order of release. Of a name with two specs in one step, the first.
std::vector<TensorId> Leader::take_step(std::uint32_t set) {
  std::vector<TensorId> step;
  std::set<TensorName> names;
  for (const TensorId id : std::exchange(released_[set], {})) {
    const Place place = *table_.place(id);
    place.entry->versions[place.version].listed = false;
    const bool fits = place.entry->plan == 0 && place.entry->dissolved < kMaxDissolved;
    if (fits && names.insert(place.entry->name).second) step.push_back(id);
  }
  return step;
}

void Leader::define_plans(std::uint32_t set) {
  const std::vector<TensorId> step = take_step(set);
  if (!left_.empty()) return;
  std::vector<const TensorSpec*> specs;
  for (const TensorId id : step) {
    const Place place = *table_.place(id);
    specs.push_back(&place.entry->versions[place.version].spec);
  }
  for (const auto& bucket : make_buckets(specs, config_.bucket_bytes)) {
    if (plans_.full()) return;
    DefinePlan item;
    for (const std::size_t at : bucket) item.tensors.push_back(step[at]);
    item.plan = plans_.define(item.tensors);
    for (const TensorId id : item.tensors) {
      Entry& entry = *table_.place(id)->entry;
      entry.plan = item.plan;
      if (!entry.ready.empty()) ++plans_.find(item.plan)->gathering;
    }
    items_.emplace_back(std::move(item));
  }
}

// A failure that every rank still here has heard of can be crossed by no report any more.
void Leader::forget_failures() {
  if (failed_.empty()) return;
  std::uint64_t least = sent_;
  for (int rank = 0; rank < config_.size; ++rank) {
    if (!left_.contains(rank)) least = std::min(least, heard_[static_cast<std::size_t>(rank)]);
  }
  std::erase_if(failed_, [&](const auto& failure) { return failure.second <= least; });
}

std::vector<ReadyTime> Leader::ready_times(TimePoint from) const {
  const auto latest = [](const std::vector<TimePoint>& times) {
    return times.empty() ? TimePoint::min() : *std::max_element(times.begin(), times.end());
  };
  std::vector<ReadyTime> times;
  for (const auto& [name, entry] : table_.entries()) {
    const Plan* plan = plans_.find(entry.plan);
    const bool in_plan = plan != nullptr && latest(plan->complete_since) > latest(entry.complete_since);
    const std::vector<TimePoint>& since = in_plan ? plan->complete_since : entry.complete_since;
    const TimePoint last = latest(since);
    if (last >= from && last != TimePoint::min()) times.push_back({name.name, since});
  }
  return times;
}

}  // namespace horo
