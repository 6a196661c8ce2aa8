#include "controller/agreement.h"

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "controller/round_texts.h"
#include "controller/texts.h"
#include "horo/base/error.h"

namespace horo {

Agreement::Agreement(const CoordinatorConfig& config, LeaderTables& tables, StreamWatermarks& progress,
                     StepPlans& step_plans, std::vector<DownItem>& items)
    : tables_(tables),
      progress_(progress),
      step_plans_(step_plans),
      items_(items),
      stalls_(config, tables),
      queue_(config, tables) {}

void Agreement::mark(VersionRef ref, int rank, bool absent, TimePoint now) {
  Entry& entry = *ref.entry;
  const Version& version = entry.versions[ref.version];
  const bool first = entry.ready.empty();
  if (version.ranks.empty()) entry.needs.insert(tables_.needs(version.spec));
  if (!entry.needs.contains(rank)) {
    throw ProtocolError("rank " + std::to_string(rank) + " reported tensor '" + entry.name.name + "' (" +
                        describe(version.spec) + "), in which it has no part");
  }
  tables_.tensors.mark(ref, rank, absent, now);
  Plan* plan = tables_.plans.find(entry.plan);
  if (first && plan != nullptr) ++plan->gathering;
}

void Agreement::update(Entry& entry, const StallPatience& patience) {
  if (disagrees_on_members(entry)) return fail_members(entry);
  if (ReadyTable::complete(entry, tables_.joins.ranks(entry.name.set))) return complete(entry, patience);
  const std::vector<int> left = tables_.left_without(entry.needs, entry.ready, entry.name.set);
  if (!left.empty()) return fail(entry, left_text(entry.name.name, left, tables_.of_set(entry.name.set)));
  stalls_.start(entry, patience);
}

void Agreement::complete(Entry& entry, const StallPatience& patience) {
  const StallPatience rest = entry.stall_timer ? entry.stall_timer->patience : patience;
  stalls_.stop(entry);
  const std::string trouble = trouble_of(entry);
  if (!trouble.empty()) return fail(entry, trouble);
  const TensorSpec& spec = ReadyTable::agreed(entry)->spec;
  if (!spec.unit.empty()) return complete_in_unit(entry, spec, rest);
  queue_.add(entry, spec.priority);
}

// A held entry has a timer too: the ranks may have made the unit of different tensors, and then it never completes.
void Agreement::complete_in_unit(Entry& entry, const TensorSpec& spec, const StallPatience& patience) {
  stalls_.start(entry, patience);
  const std::vector<Entry*> unit = units_.hold(entry, spec);
  std::int32_t priority = spec.priority;
  for (Entry* one : unit) priority = std::max(priority, ReadyTable::agreed(*one)->spec.priority);
  for (Entry* one : unit) {
    stalls_.stop(*one);
    queue_.add(*one, priority);
  }
}

// The reason why a complete tensor cannot be run; empty if it can.
std::string Agreement::trouble_of(Entry& entry) const {
  const Version* version = ReadyTable::agreed(entry);
  if (version == nullptr) return mismatch_text(ReadyTable::reports(entry), tables_.of_set(entry.name.set));
  if (entry.rounds.differ()) {
    return rounds_text(entry.name.name, entry.rounds.groups(entry.ready), tables_.of_set(entry.name.set));
  }
  const CollectiveKind kind = version->spec.kind;
  const bool runs_without_joined = kind == CollectiveKind::kAllReduce || kind == CollectiveKind::kBarrier;
  if (runs_without_joined || entry.ready.covers(entry.needs)) return "";
  return joined_text(version->spec, entry.needs.without(entry.ready).ranks(), tables_.of_set(entry.name.set));
}

void Agreement::update_plan(PlanId id, const StallPatience& patience) {
  Plan& plan = *tables_.plans.find(id);
  const RankSet& members = tables_.members(plan.set);
  if (plan.complete.covers(members)) {
    stalls_.stop(plan);
    return queue_.add(id);
  }
  if (!tables_.left_without(members, plan.complete, plan.set).empty()) return dissolve(id, patience);
  stalls_.start(id, patience);
}

void Agreement::split(Plan& plan, StallPatience patience) {
  if (plan.complete.empty()) return;
  if (plan.stall_timer && plan.stall_timer->patience.since < patience.since) patience = plan.stall_timer->patience;
  stalls_.stop(plan);
  const std::vector<int> ranks = plan.complete.ranks();
  for (std::uint32_t slot = 0; slot < plan.tensors.size(); ++slot) {
    const VersionRef ref = *tables_.tensors.version_of(plan.tensors[slot]);
    const auto rounds = plan.rounds.find(ref.entry->versions[ref.version].spec.round_stream);
    for (const int rank : ranks) {
      mark(ref, rank, plan.is_absent(slot, rank), plan.since[static_cast<std::size_t>(rank)]);
      if (rounds != plan.rounds.end()) ref.entry->rounds.add(rank, rounds->second.of(rank));
    }
  }
  plan.clear();
  for (const TensorId id : plan.tensors) {
    Entry& entry = *tables_.tensors.version_of(id)->entry;
    if (!entry.ready.empty()) update(entry, patience);  // empty: it failed with a tensor before it
  }
}

void Agreement::dissolve(PlanId id, const StallPatience& patience, bool keep_apart) {
  Plan& plan = *tables_.plans.find(id);
  plan.live = false;
  queue_.remove(id);
  items_.emplace_back(DissolvePlan{id});
  for (const TensorId tensor : plan.tensors) {
    Entry& entry = *tables_.tensors.version_of(tensor)->entry;
    entry.plan = 0;
    if (keep_apart) step_plans_.keep_apart(entry);
    if (!plan.complete_since.empty()) entry.complete_since = plan.complete_since;
    for (std::size_t rank = 0; rank < entry.since.size(); ++rank) {
      entry.since[rank] = std::max(entry.since[rank], plan.since[rank]);
    }
  }
  split(plan, patience);
}

// Ranks have reported the same set of members with different ranks, so the instance may never be complete. It is over
// when all ranks that are in each of these sets have reported it.
bool Agreement::disagrees_on_members(const Entry& entry) const {
  if (entry.name.channel != kMembersChannel) return false;
  RankSet outside(tables_.size);  // of one of the sets
  for (const SpecReport& report : ReadyTable::reports(entry)) {
    outside.insert(entry.needs.without(tables_.needs(*report.spec)));
  }
  return !outside.empty() && entry.ready.covers(entry.needs.without(outside));
}

// A rank that has not reported it fails it when it does.
void Agreement::fail_members(Entry& entry) {
  const TensorName name = entry.name;
  FailTensors item{{{name, true, ""}}, mismatch_text(ReadyTable::reports(entry), tables_.of_set(name.set)), {}};
  item.missing = tables_.missing(entry);
  if (!item.missing.empty()) progress_.tensor_failed(name);
  items_.emplace_back(std::move(item));
  finish(entry);
}

// A rank that has not reported this instance reports it before it applies the failure, or not at all.
void Agreement::fail(Entry& entry, const std::string& text) {
  const TensorName name = entry.name;
  const std::set<TensorName> units = ReadyTable::units(entry);
  if (!entry.ready.covers(entry.needs)) progress_.tensor_failed(name);
  items_.emplace_back(FailTensors{{{name, ReadyTable::is_once(entry), ""}}, text, {}});
  finish(entry);
  for (const TensorName& unit : units) fail_unit(unit, {name.name, text}, false);
}

// A rank that has reported one tensor of a unit has reported all of them, so all of its tensors are in the table.
void Agreement::fail_unit(const TensorName& unit, const UnitFailure& why, bool stalled) {
  units_.forget(unit);
  std::map<std::vector<int>, FailTensors> items;  // by the ranks that did not submit the tensors
  std::set<TensorName> others;
  for (Entry* entry : tables_.tensors.of_unit(unit)) {
    queue_.remove(entry);
    others.merge(ReadyTable::units(*entry));
    FailTensors& item = items[stalled ? tables_.missing(*entry) : std::vector<int>()];
    item.tensors.push_back({entry->name, ReadyTable::is_once(*entry),
                            unit_head(entry->name.name, unit.name, why.culprit, tables_.of_set(unit.set))});
    if (!entry->ready.covers(entry->needs)) progress_.tensor_failed(entry->name);
    finish(*entry);
  }
  for (auto& [missing, item] : items) {
    item.text = why.text;
    item.missing = missing;
    items_.emplace_back(std::move(item));
  }
  others.erase(unit);
  for (const TensorName& other : others) fail_unit(other, why, stalled);
}

void Agreement::finish(Entry& entry) {
  stalls_.stop(entry);
  if (Plan* plan = tables_.plans.find(entry.plan)) --plan->gathering;
  tables_.tensors.finish(entry);
}

void Agreement::rank_left(int rank, TimePoint now) {
  stalls_.rank_left(rank);
  for (const PlanId id : tables_.plans.live()) {
    const Plan& plan = *tables_.plans.find(id);
    const bool waits_for_it = tables_.members(plan.set).contains(rank) && !plan.complete.contains(rank);
    if (waits_for_it) dissolve(id, stalls_.fresh(now));
  }
  for (const TensorName& name : stalls_.waiting_names()) {
    Entry* entry = tables_.tensors.find(name);
    if (entry == nullptr || !entry->stall_timer) continue;  // failed with its unit
    const std::vector<int> left = tables_.left_without(entry->needs, entry->ready, name.set);
    if (!left.empty()) fail(*entry, left_text(name.name, left, tables_.of_set(name.set)));
  }
  queue_.rank_left(rank);
}

// Plans form again at the next step end without joined ranks.
void Agreement::rank_joined(std::uint32_t set, TimePoint now) {
  for (const PlanId id : tables_.plans.live()) {
    if (tables_.plans.find(id)->set == set) dissolve(id, stalls_.fresh(now), false);
  }
  for (const TensorName& name : stalls_.waiting_names()) {
    Entry* entry = tables_.tensors.find(name);
    if (name.set != set || entry == nullptr || !entry->stall_timer || entry->held) continue;
    const StallPatience patience = entry->stall_timer->patience;
    update(*entry, patience);
  }
}

void Agreement::timer_fired(TimePoint now) {
  while (const std::optional<StallStep> step = stalls_.advance(now)) {
    if (step->dissolve) dissolve(step->dissolve->plan, step->dissolve->patience);
  }
  if (const std::optional<RequestDiagnosis> request = stalls_.ask(now)) items_.emplace_back(*request);
  stalls_.warn(now);
  for (const PlanStall& stall : stalls_.take_entangled()) dissolve(stall.plan, stall.patience);
  carry_out(stalls_.take_deadlocked(now));
  carry_out(stalls_.take_expired(now));
}

void Agreement::carry_out(StallFailures failures) {
  for (const PlanStall& stall : failures.dissolve) dissolve(stall.plan, stall.patience);
  for (FailTensors& item : failures.items) items_.emplace_back(std::move(item));
  for (Entry* entry : failures.entries) {
    progress_.tensor_failed(entry->name);
    finish(*entry);
  }
  for (const auto& [unit, why] : failures.units) fail_unit(unit, why, true);
}

void Agreement::forget_set(std::uint32_t set) {
  for (const PlanId id : tables_.plans.live()) {
    Plan& plan = *tables_.plans.find(id);
    if (plan.set != set) continue;
    plan.live = false;
    stalls_.stop(plan);
    plan.clear();
    items_.emplace_back(DissolvePlan{id});
  }
  for (Entry* entry : tables_.tensors.of_set(set)) stalls_.stop(*entry);
  tables_.tensors.forget_set(set);
  units_.forget_set(set);
  step_plans_.forget_set(set);
  tables_.rounds.forget_set(set);
  queue_.forget_set(set);
}

}  // namespace horo
