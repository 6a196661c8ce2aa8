// Process sets and joins. A set begins and ends at one place in the stream, so that every rank means the same by its
// number. A rank that has joined is missed by nobody: what waited for it is complete without it.
#include <algorithm>
#include <utility>

#include "controller/leader.h"
#include "horo/base/error.h"

namespace horo {

// True if the set is no more, and the rank could not know it when it reported.
bool Leader::gone(int from, std::uint32_t set) const {
  if (sets_.find(set) != nullptr) return false;
  if (sets_.existed(set) && heard_[static_cast<std::size_t>(from)] < last_removal_) return true;
  throw ProtocolError("rank " + std::to_string(from) + " speaks of process set " + std::to_string(set) +
                      ", which was " + (sets_.existed(set) ? "removed" : "never added"));
}

const RankSet* Leader::joined(std::uint32_t set) const {
  const auto found = joins_.find(set);
  return found == joins_.end() ? nullptr : &found->second.ranks;
}

std::string Leader::of_set(std::uint32_t set) const {
  return of_set_text(set, sets_.find(set)->name);
}

// Who has to report what is so described.
RankSet Leader::needs(const TensorSpec& spec) const {
  const KnownSet& set = *sets_.find(spec.set);
  if (spec.kind != CollectiveKind::kSendRecv) return set.members;
  RankSet ends(config_.size);
  for (const int end : {spec.root, spec.peer}) {
    if (end < 0 || static_cast<std::size_t>(end) >= set.ranks.size()) {
      throw ProtocolError("tensor '" + spec.name + "': rank " + std::to_string(end) + " in a process set of " +
                          std::to_string(set.ranks.size()));
    }
    ends.insert(set.ranks[static_cast<std::size_t>(end)]);
  }
  return ends;
}

void Leader::define_set(Entry& entry) {
  Version& version = *ReadyTable::agreed(entry);
  std::vector<int> ranks;
  for (const std::int64_t rank : version.spec.shape) ranks.push_back(static_cast<int>(rank));
  if (ranks.front() < 0 || version.spec.shape.back() >= config_.size) {
    return fail(
        entry, "a process set " + ranks_text(ranks) + ": the world has ranks 0 to " + std::to_string(config_.size - 1));
  }
  if (const std::optional<std::uint32_t> known = sets_.find(ranks)) {
    return fail(entry, "a process set of " + ranks_text(ranks) + " exists already: " +
                           set_text(*known, sets_.find(*known)->name) + ". Use that one, or remove it first");
  }
  items_.emplace_back(DefineSet{table_.refer(entry, version), sets_.next(), version.spec.set_name, ranks});
  sets_.add(version.spec.set_name, std::move(ranks));
  finish(entry);
}

void Leader::end_set(Entry& entry) {
  Version& version = *ReadyTable::agreed(entry);
  const std::int64_t number = version.spec.shape.front();
  const auto set = static_cast<std::uint32_t>(number);
  if (number < 1 || number >= sets_.next() || sets_.find(set) == nullptr) {
    return fail(entry, "process set " + std::to_string(number) +
                           (number == 0 ? " is the world, which cannot be removed" : " does not exist (any more)"));
  }
  TensorRef ref = table_.refer(entry, version);
  finish(entry);
  forget_set(set);
  items_.emplace_back(EndSet{std::move(ref), set});
  sets_.remove(set);
  last_removal_ = sent_ + 1;
}

void Leader::forget_set(std::uint32_t set) {
  for (const PlanId id : plans_.live()) {
    Plan& plan = *plans_.find(id);
    if (plan.set != set) continue;
    plan.live = false;
    stop_waiting(plan.waiting);
    plan.clear();
    items_.emplace_back(DissolvePlan{id});
  }
  for (Entry* entry : table_.of_set(set)) stop_waiting(entry->waiting);
  table_.forget_set(set);
  std::erase_if(held_, [set](const auto& unit) { return unit.first.set == set; });
  std::erase_if(failed_, [set](const auto& failure) { return failure.first.set == set; });
  released_.erase(set);
  ended_.erase(set);
  steps_.erase(set);
  joins_.erase(set);
  flows_.erase(set);
}

void Leader::take_join(int from, const TensorSpec& spec, TimePoint now) {
  if (gone(from, spec.set)) return;
  check_member(from, spec.set, spec.name);
  const std::vector<int>& ranks = sets_.find(spec.set)->ranks;
  Joins& joins = joins_.try_emplace(spec.set, Joins{RankSet(config_.size)}).first->second;
  joins.ranks.insert(from);
  joins.last = static_cast<int>(std::lower_bound(ranks.begin(), ranks.end(), from) - ranks.begin());
  for (const PlanId id : plans_.live()) {
    if (plans_.find(id)->set == spec.set) dissolve(id, clock_.fresh(now), 0);
  }
  for (const TensorName& name : waiting_names()) {
    Entry* entry = table_.find(name);
    if (name.set != spec.set || entry == nullptr || !entry->waiting || entry->held) continue;
    const StallPatience patience = entry->waiting->patience;
    settle(*entry, patience);
  }
  fail_lost_join(spec.set);
}

// Whoever has joined waits for all members; if one left, for ever.
void Leader::fail_lost_join(std::uint32_t set) {
  const RankSet* joined = this->joined(set);
  if (joined == nullptr) return;
  const std::vector<int> left = left_without(members(set), *joined, set);
  if (left.empty()) return;
  items_.emplace_back(JoinOver{set, 0, lost_join_text(left, of_set(set))});
  joins_.erase(set);
}

// Of a set that all have joined nothing is on its way: what is not complete now never will be.
void Leader::end_joins() {
  std::vector<std::uint32_t> over;
  for (const auto& [set, joins] : joins_) {
    if (joins.ranks.covers(members(set))) over.push_back(set);
  }
  for (const std::uint32_t set : over) {
    for (const TensorName& unit : held_units(set)) fail_unit(unit, "", joined_unit_text(), false);
    items_.emplace_back(JoinOver{set, joins_.at(set).last, ""});
    joins_.erase(set);
  }
}

}  // namespace horo
