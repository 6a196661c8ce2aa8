#include "controller/release_queue.h"

#include <algorithm>
#include <utility>

namespace horo {

void ReleaseQueue::add(Entry& entry, std::int32_t priority) {
  if (Flow::has_priority(ReadyTable::agreed(entry)->spec.kind)) flows_[entry.name.set].add_priority(priority);
  entry.turn = ++turns_;
  entry.priority = priority;
  complete_.push_back({&entry});
}

void ReleaseQueue::remove(EntryOrPlan what) {
  std::erase_if(complete_, [&](const Complete& one) { return one.what == what; });
}

void ReleaseQueue::rank_left(int rank) {
  for (auto& [set, flow] : flows_) {
    if (tables_.members(set).contains(rank)) flow.stop_holding();
  }
}

bool ReleaseQueue::needs_done(std::uint32_t set, CollectiveKind kind) const {
  const auto flow = flows_.find(set);
  return Flow::has_priority(kind) && flow != flows_.end() && flow->second.is_ranked();
}

// A tensor that moves no data, or that does not run on the set's lane, has the highest priority and no bytes.
ReleaseQueue::Candidate ReleaseQueue::candidate(std::size_t index) const {
  const EntryOrPlan& what = complete_[index].what;
  if (const PlanId* id = std::get_if<PlanId>(&what)) {
    const Plan& plan = *tables_.plans.find(*id);
    const auto skipped = std::count_if(plan.absent.begin(), plan.absent.end(),
                                       [&](const auto& slot) { return slot.second.count() == plan.complete.count(); });
    return {index, plan.set, plan.priority, plan.tensors.size() - static_cast<std::size_t>(skipped), plan.bytes};
  }
  Entry& entry = *std::get<Entry*>(what);
  const TensorSpec& spec = ReadyTable::agreed(entry)->spec;
  if (!Flow::has_priority(spec.kind) || entry.absent.count() == entry.ready.count()) {
    return {index, entry.name.set, INT32_MAX, 0, 0, spec.unit};
  }
  return {index, entry.name.set, entry.priority, 1, spec.bytes(), spec.unit};
}

// The sets in which everything that is complete is released: removed ones, those that all members have joined, and
// those in which a round is committed.
std::set<std::uint32_t> ReleaseQueue::ending_sets() const {
  std::set<std::uint32_t> ending;
  for (const auto& [set, join] : tables_.joins.all()) {
    if (join.ranks.covers(tables_.members(set))) ending.insert(set);
  }
  for (const Complete& complete : complete_) {
    Entry* const* entry = std::get_if<Entry*>(&complete.what);
    if (entry == nullptr) continue;
    const TensorSpec& spec = ReadyTable::agreed(**entry)->spec;
    if (spec.kind == CollectiveKind::kRemoveSet) ending.insert(static_cast<std::uint32_t>(spec.shape.front()));
    if (spec.kind == CollectiveKind::kBarrier && spec.round_stream != 0) ending.insert(spec.set);
  }
  return ending;
}

std::vector<EntryOrPlan> ReleaseQueue::take() {
  std::vector<EntryOrPlan> chosen;
  const bool is_ranked = std::any_of(flows_.begin(), flows_.end(), [](const auto& f) { return f.second.is_ranked(); });
  if (!is_ranked) {
    for (const Complete& one : std::exchange(complete_, {})) chosen.push_back(one.what);
    return chosen;
  }
  std::vector<Candidate> candidates;
  for (std::size_t index = 0; index < complete_.size(); ++index) candidates.push_back(candidate(index));
  const std::vector<bool> goes = choose(candidates);
  for (const Candidate& one : candidates) {
    if (goes[one.index]) chosen.push_back(complete_[one.index].what);
  }
  count_passed(candidates, goes);
  std::size_t index = 0;
  std::erase_if(complete_, [&](const Complete&) { return goes[index++]; });
  return chosen;
}

// Sorts the candidates into release order. Returns which of complete_ are released, by index.
std::vector<bool> ReleaseQueue::choose(std::vector<Candidate>& candidates) {
  std::vector<bool> goes(candidates.size());
  for (Candidate& one : candidates) {
    if (complete_[one.index].passed >= config_.most_passed) one.priority = INT32_MAX;
  }
  std::sort(candidates.begin(), candidates.end(), [](const Candidate& a, const Candidate& b) {
    return a.priority != b.priority ? a.priority > b.priority : a.index < b.index;
  });
  const std::set<std::uint32_t> ending = ending_sets();
  const Candidate* unit = nullptr;  // the last chosen candidate that belongs to a unit: the whole unit is chosen
  for (const Candidate& one : candidates) {
    Flow& flow = flows_[one.set];
    const bool with_unit = unit != nullptr && unit->unit == one.unit && unit->set == one.set;
    const bool is_free = one.tensors == 0 || one.priority == INT32_MAX || ending.contains(one.set);
    if (!is_free && !with_unit && flow.must_wait(one.priority, config_.credit_bytes)) continue;
    goes[one.index] = true;
    if (!one.unit.empty()) unit = &one;
    if (one.tensors > 0 && flow.is_ranked()) flow.released(one.tensors, one.bytes);
  }
  return goes;
}

void ReleaseQueue::count_passed(const std::vector<Candidate>& candidates, const std::vector<bool>& goes) {
  std::vector<std::uint32_t> sets(goes.size());
  for (const Candidate& one : candidates) sets[one.index] = one.set;
  std::map<std::uint32_t, std::size_t> younger;  // that are released, by set
  for (std::size_t index = goes.size(); index-- > 0;) {
    if (goes[index]) {
      ++younger[sets[index]];
    } else {
      complete_[index].passed += younger[sets[index]];
    }
  }
}

}  // namespace horo
