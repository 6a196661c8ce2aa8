// What is complete becomes releases, in the order in which it became so; what a step released becomes known plans.
#include <algorithm>
#include <span>
#include <utility>

#include "controller/leader.h"

namespace horo {
namespace {

Entry* present_everywhere(const Waiting& complete) {
  Entry* const* entry = std::get_if<Entry*>(&complete);
  return entry != nullptr && (*entry)->absent.empty() ? *entry : nullptr;
}

}  // namespace

// A set is ended last: what was complete in it before then is run.
void Leader::release_complete() {
  std::vector<Entry*> fusible;
  std::vector<Fusible> tensors;
  std::vector<bool> is_fusible;
  const std::vector<Waiting> all = choose();
  for (const Waiting& complete : all) {
    Entry* entry = present_everywhere(complete);
    const TensorSpec* spec = entry == nullptr ? nullptr : &ReadyTable::agreed(*entry)->spec;
    is_fusible.push_back(spec != nullptr && spec->kind == CollectiveKind::kAllReduce);
    if (!is_fusible.back()) continue;
    fusible.push_back(entry);
    tensors.push_back({spec, participants(*entry)});
  }
  const auto buckets = make_buckets(tensors, limits(config_.bucket_bytes));  // they are ready, all of them
  auto bucket = buckets.begin();
  std::size_t position = 0;  // in fusible
  std::vector<Entry*> removals;
  for (std::size_t i = 0; i < all.size(); ++i) {
    if (!is_fusible[i]) {
      const PlanId* id = std::get_if<PlanId>(&all[i]);
      id != nullptr ? release_plan(*id) : release_alone(*std::get<Entry*>(all[i]), removals);
    } else if (position++; bucket != buckets.end() && bucket->front() == position - 1) {
      std::vector<Entry*> entries;
      for (const std::size_t at : *bucket++) entries.push_back(fusible[at]);
      release_bucket(entries, {});
    }
  }
  for (Entry* removal : removals) end_set(*removal);
}

void Leader::release_alone(Entry& entry, std::vector<Entry*>& removals) {
  const CollectiveKind kind = ReadyTable::agreed(entry)->spec.kind;
  if (kind == CollectiveKind::kAddSet) return define_set(entry);
  if (kind == CollectiveKind::kRemoveSet) return removals.push_back(&entry);
  if (entry.absent.count() == entry.ready.count()) return skip(entry);
  release_bucket({&entry}, entry.absent.ranks());
}

// Empty: all members of the set.
std::vector<int> Leader::participants(Entry& entry) const {
  const bool is_pair = ReadyTable::agreed(entry)->spec.kind == CollectiveKind::kSendRecv;
  return !is_pair && entry.ready.covers(entry.needs) ? std::vector<int>() : entry.ready.ranks();
}

void Leader::release_bucket(const std::vector<Entry*>& entries, std::vector<int> absent_ranks) {
  ReleaseTensors item{{}, std::move(absent_ranks), participants(*entries.front())};
  item.tells = tells(entries.front()->name.set, ReadyTable::agreed(*entries.front())->spec.kind);
  for (Entry* entry : entries) {
    Version& version = *ReadyTable::agreed(*entry);
    item.tensors.push_back(table_.refer(*entry, version));
    list(*entry, version);
    finish(*entry);
  }
  items_.emplace_back(std::move(item));
}

void Leader::skip(Entry& entry) {
  std::vector<int> ranks = participants(entry);
  TensorRef ref = table_.refer(entry, *ReadyTable::agreed(entry));
  finish(entry);
  const auto* last = items_.empty() ? nullptr : std::get_if<SkipTensors>(&items_.back());
  if (last == nullptr || last->ranks != ranks) items_.emplace_back(SkipTensors{{}, std::move(ranks)});
  std::get<SkipTensors>(items_.back()).tensors.push_back(std::move(ref));
}

void Leader::release_plan(PlanId id) {
  Plan& plan = *plans_.find(id);
  items_.emplace_back(ReleasePlan{id, plan.exceptions(), tells(plan.set, CollectiveKind::kAllReduce)});
  plan.complete_since = plan.since;
  plan.clear();
}

// Notes a released tensor that may be in a plan from the next step end on. A member without a part in the release may
// not know its number.
void Leader::list(Entry& entry, Version& version) {
  const bool everywhere = entry.ready.covers(entry.needs);
  const bool fits =
      version.spec.stepwise && version.spec.kind == CollectiveKind::kAllReduce && version.id && everywhere;
  if (!fits || version.listed || entry.plan != 0) return;
  version.listed = true;
  released_[version.spec.set].push_back({entry.turn, *version.id});
}

// The tensors of the set's step that ended, in the order in which they were ready, which is not that of release where
// some are more urgent. Of a name with two specs in one step, the first.
std::vector<TensorId> Leader::take_step(std::uint32_t set, std::size_t released) {
  std::vector<TensorId> step;
  std::set<TensorName> names;
  std::vector<Listed>& all = released_[set];
  const auto end = all.begin() + static_cast<std::ptrdiff_t>(released);
  std::sort(all.begin(), end, [](const Listed& a, const Listed& b) { return a.turn < b.turn; });
  for (const auto& [turn, id] : std::span(all.begin(), end)) {
    const Place place = *table_.place(id);
    place.entry->versions[place.version].listed = false;
    const bool fits = place.entry->plan == 0 && steps_[set] > place.entry->apart_until;
    if (fits && names.insert(place.entry->name).second) step.push_back(id);
  }
  all.erase(all.begin(), end);
  return step;
}

// A unit is in a plan as a whole or not at all, because plans are released one by one.
void Leader::define_plans(std::uint32_t set, std::size_t released) {
  if (sets_.find(set) == nullptr) return;
  ++steps_[set];
  const std::vector<TensorId> step = take_step(set, released);
  if (left_.meets(members(set)) || joined(set) != nullptr) return;
  std::vector<Fusible> tensors;
  for (const TensorId id : step) {
    const Place place = *table_.place(id);
    tensors.push_back({&place.entry->versions[place.version].spec});
  }
  for (const auto& bucket : make_buckets(tensors, limits(config_.least_bucket_bytes))) {
    if (plans_.full()) return;
    const TensorSpec& first = *tensors[bucket.front()].spec;
    if (!first.unit.empty() && bucket.size() != static_cast<std::size_t>(first.unit_size)) continue;
    std::vector<TensorId> ids;
    for (const std::size_t at : bucket) ids.push_back(step[at]);
    define_plan(set, std::move(ids));
  }
}

void Leader::define_plan(std::uint32_t set, std::vector<TensorId> tensors) {
  const PlanId id = plans_.define(set, tensors);
  Plan& plan = *plans_.find(id);
  plan.priority = INT32_MIN;
  for (const TensorId tensor : tensors) {
    const Place place = *table_.place(tensor);
    const TensorSpec& spec = place.entry->versions[place.version].spec;
    plan.priority = std::max(plan.priority, spec.priority);
    plan.bytes += spec.bytes();
    place.entry->plan = id;
    if (!place.entry->ready.empty()) ++plan.gathering;
  }
  items_.emplace_back(DefinePlan{id, std::move(tensors)});
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

std::vector<ReadyTime> Leader::ready_times(const std::function<TimePoint(std::uint32_t)>& from) const {
  const auto latest = [](const std::vector<TimePoint>& times) {
    return times.empty() ? TimePoint::min() : *std::max_element(times.begin(), times.end());
  };
  std::vector<ReadyTime> times;
  for (const auto& [name, entry] : table_.entries()) {
    const Plan* plan = plans_.find(entry.plan);
    const bool in_plan = plan != nullptr && latest(plan->complete_since) > latest(entry.complete_since);
    const std::vector<TimePoint>& since = in_plan ? plan->complete_since : entry.complete_since;
    const TimePoint last = latest(since);
    if (last >= from(name.set) && last != TimePoint::min()) times.push_back({name.name, since});
  }
  return times;
}

}  // namespace horo
