// Releases of the leader: what the release queue returns becomes items of the next message.
#include <utility>

#include "controller/bucketer.h"
#include "controller/leader.h"

namespace horo {
namespace {

// The entry, if all its ranks have reported it with a value; else null.
Entry* present_everywhere(const EntryOrPlan& complete) {
  Entry* const* entry = std::get_if<Entry*>(&complete);
  return entry != nullptr && (*entry)->absent.empty() ? *entry : nullptr;
}

// The ranks that take part in the collective; empty: all members of the set.
std::vector<int> participants(Entry& entry) {
  const bool is_pair = ReadyTable::agreed(entry)->spec.kind == CollectiveKind::kSendRecv;
  return !is_pair && entry.ready.covers(entry.needs) ? std::vector<int>() : entry.ready.ranks();
}

}  // namespace

// Removals of sets come last, so that everything that is complete in a set is released before the set ends.
void Leader::release_complete() {
  std::vector<Entry*> fusible;
  std::vector<Fusible> tensors;
  std::vector<bool> is_fusible;
  const std::vector<EntryOrPlan> all = agreement_.queue().take();
  for (const EntryOrPlan& complete : all) {
    Entry* entry = present_everywhere(complete);
    const TensorSpec* spec = entry == nullptr ? nullptr : &ReadyTable::agreed(*entry)->spec;
    is_fusible.push_back(spec != nullptr && spec->kind == CollectiveKind::kAllReduce);
    if (!is_fusible.back()) continue;
    fusible.push_back(entry);
    tensors.push_back({spec, participants(*entry)});
  }
  // The least size of a bucket is its greatest: all of these tensors are ready, so a smaller bucket starts no sooner.
  const auto buckets = make_buckets(tensors, {config_.bucket_bytes, config_.credit_bytes / 2, config_.bucket_bytes});
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

void Leader::release_bucket(const std::vector<Entry*>& entries, std::vector<int> absent_ranks) {
  Entry& first = *entries.front();
  ReleaseTensors item{{}, std::move(absent_ranks), participants(first)};
  item.reports_done = agreement_.queue().needs_done(first.name.set, ReadyTable::agreed(first)->spec.kind);
  for (Entry* entry : entries) {
    Version& version = *ReadyTable::agreed(*entry);
    item.tensors.push_back(tables_.tensors.refer(*entry, version));
    step_plans_.add(*entry, version);
    agreement_.finish(*entry);
  }
  items_.emplace_back(std::move(item));
}

// Tensors that are skipped one after the other by the same ranks share one item.
void Leader::skip(Entry& entry) {
  std::vector<int> ranks = participants(entry);
  TensorRef ref = tables_.tensors.refer(entry, *ReadyTable::agreed(entry));
  agreement_.finish(entry);
  const auto* last = items_.empty() ? nullptr : std::get_if<SkipTensors>(&items_.back());
  if (last == nullptr || last->ranks != ranks) items_.emplace_back(SkipTensors{{}, std::move(ranks)});
  std::get<SkipTensors>(items_.back()).tensors.push_back(std::move(ref));
}

void Leader::release_plan(PlanId id) {
  Plan& plan = *tables_.plans.find(id);
  const bool reports_done = agreement_.queue().needs_done(plan.set, CollectiveKind::kAllReduce);
  items_.emplace_back(ReleasePlan{id, plan.exceptions(), reports_done});
  plan.complete_since = plan.since;
  plan.clear();
}

}  // namespace horo
