// What of all that is complete is released now, and in which order: by priority, and among equals as it became
// complete. The rest stays where it is until the lanes have less to do; to whoever has joined, left or stalls it is
// nothing but complete. Nothing waits for ever: what most_passed younger ones have gone before is as urgent as can be.
#include <algorithm>
#include <utility>

#include "controller/leader.h"

namespace horo {

// The tensors of a unit are as urgent as the most urgent of them, and next to each other.
Leader::Candidate Leader::candidate(std::size_t place) {
  const Waiting& what = complete_[place].what;
  if (const PlanId* id = std::get_if<PlanId>(&what)) {
    const Plan& plan = *plans_.find(*id);
    const auto nowhere = std::count_if(plan.absent.begin(), plan.absent.end(),
                                       [&](const auto& slot) { return slot.second.count() == plan.complete.count(); });
    return {place, plan.set, plan.priority, plan.tensors.size() - static_cast<std::size_t>(nowhere), plan.bytes};
  }
  Entry& entry = *std::get<Entry*>(what);
  const TensorSpec& spec = ReadyTable::agreed(entry)->spec;
  if (!Flow::orders(spec.kind) || entry.absent.count() == entry.ready.count()) {
    return {place, entry.name.set, INT32_MAX, 0, 0, spec.unit};
  }
  return {place, entry.name.set, entry.priority, 1, spec.bytes(), spec.unit};
}

// All of these that is complete is released before the end.
std::set<std::uint32_t> Leader::ending_sets() {
  std::set<std::uint32_t> ending;
  for (const auto& [set, joins] : joins_) {
    if (joins.ranks.covers(members(set))) ending.insert(set);
  }
  for (const Complete& complete : complete_) {
    Entry* const* entry = std::get_if<Entry*>(&complete.what);
    if (entry == nullptr) continue;
    const TensorSpec& spec = ReadyTable::agreed(**entry)->spec;
    if (spec.kind == CollectiveKind::kRemoveSet) ending.insert(static_cast<std::uint32_t>(spec.shape.front()));
  }
  return ending;
}

// What goes now, in this order.
std::vector<Waiting> Leader::choose() {
  std::vector<Waiting> chosen;
  const bool is_ranked = std::any_of(flows_.begin(), flows_.end(), [](const auto& f) { return f.second.is_ranked(); });
  if (!is_ranked) {
    for (const Complete& one : std::exchange(complete_, {})) chosen.push_back(one.what);
    return chosen;
  }
  std::vector<Candidate> candidates;
  for (std::size_t place = 0; place < complete_.size(); ++place) candidates.push_back(candidate(place));
  const std::vector<bool> goes = choose_by_priority(candidates);
  for (const Candidate& one : candidates) {
    if (goes[one.place]) chosen.push_back(complete_[one.place].what);
  }
  count_passed(candidates, goes);
  std::size_t place = 0;
  std::erase_if(complete_, [&](const Complete&) { return goes[place++]; });
  return chosen;
}

// By place; sorts the candidates.
std::vector<bool> Leader::choose_by_priority(std::vector<Candidate>& candidates) {
  std::vector<bool> goes(candidates.size());
  for (Candidate& one : candidates) {
    if (complete_[one.place].passed >= config_.most_passed) one.priority = INT32_MAX;
  }
  std::sort(candidates.begin(), candidates.end(), [](const Candidate& a, const Candidate& b) {
    return a.priority != b.priority ? a.priority > b.priority : a.place < b.place;
  });
  const std::set<std::uint32_t> ending = ending_sets();
  const Candidate* unit = nullptr;  // the last that went and is of one: all of it goes
  for (const Candidate& one : candidates) {
    Flow& flow = flows_[one.set];
    const bool with_unit = unit != nullptr && unit->unit == one.unit && unit->set == one.set;
    const bool is_free = one.tensors == 0 || one.priority == INT32_MAX || ending.contains(one.set);
    if (!is_free && !with_unit && flow.holds(one.priority, config_.credit_bytes)) continue;
    goes[one.place] = true;
    if (!one.unit.empty()) unit = &one;
    if (one.tensors > 0 && flow.is_ranked()) flow.send(one.tensors, one.bytes);
  }
  return goes;
}

void Leader::count_passed(const std::vector<Candidate>& candidates, const std::vector<bool>& goes) {
  std::vector<std::uint32_t> sets(goes.size());
  for (const Candidate& one : candidates) sets[one.place] = one.set;
  std::map<std::uint32_t, std::size_t> younger;  // that go, by set
  for (std::size_t place = goes.size(); place-- > 0;) {
    if (goes[place]) {
      ++younger[sets[place]];
    } else {
      complete_[place].passed += younger[sets[place]];
    }
  }
}

// Whether the first who takes part says when it is over.
bool Leader::tells(std::uint32_t set, CollectiveKind kind) {
  return Flow::orders(kind) && flows_[set].is_ranked();
}

void Leader::take_done(int from, const Done& done) {
  if (!gone(from, done.set)) flows_[done.set].done(done.tensors);
}

// Half a credit for what is less urgent and goes with the rest: one bucket is on the wire, one is packed behind it.
BucketLimits Leader::limits(std::size_t least) const {
  return {config_.bucket_bytes, config_.credit_bytes / 2, least};
}

}  // namespace horo
