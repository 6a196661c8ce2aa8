#include "controller/stall_monitor.h"

#include <algorithm>
#include <utility>

#include "horo/base/check.h"

namespace horo {
namespace {

// A text names this number of tensors that a missing rank waits for.
constexpr std::size_t kMostShown = 3;

}  // namespace

StallMonitor::StallMonitor(const CoordinatorConfig& config, LeaderTables& tables)
    : config_(config), tables_(tables), clock_(config), round_(config.size) {}

void StallMonitor::start(Entry& entry, const StallPatience& patience) {
  if (!entry.stall_timer) entry.stall_timer = clock_.add(patience, &entry);
}

void StallMonitor::start(PlanId id, const StallPatience& patience) {
  Plan& plan = *tables_.plans.find(id);
  if (!plan.stall_timer) plan.stall_timer = clock_.add(patience, id);
}

void StallMonitor::stop(Entry& entry) {
  if (entry.stall_timer) clock_.remove(*entry.stall_timer);
  entry.stall_timer.reset();
  std::erase(newly_late_, EntryOrPlan(&entry));
  std::erase(expired_, EntryOrPlan(&entry));
}

void StallMonitor::stop(Plan& plan) {
  if (plan.stall_timer) clock_.remove(*plan.stall_timer);
  plan.stall_timer.reset();
}

std::vector<TensorName> StallMonitor::waiting_names() const {
  std::vector<TensorName> names;
  for (const EntryOrPlan& what : clock_.all()) {
    if (Entry* const* entry = std::get_if<Entry*>(&what)) names.push_back((*entry)->name);
  }
  return names;
}

std::optional<StallTimer>& StallMonitor::timer_of(EntryOrPlan what) const {
  if (Entry* const* entry = std::get_if<Entry*>(&what)) return (*entry)->stall_timer;
  return tables_.plans.find(std::get<PlanId>(what))->stall_timer;
}

// Starts the timer again, with this patience.
void StallMonitor::restart(EntryOrPlan what, const StallPatience& patience) {
  std::optional<StallTimer>& timer = timer_of(what);
  if (timer) clock_.remove(*timer);
  timer = clock_.add(patience, what);
}

// True if the rank has reported it, and it is not complete. A held entry is complete: it waits for other tensors.
bool StallMonitor::waits_for_others(EntryOrPlan what, int rank) const {
  if (Entry* const* entry = std::get_if<Entry*>(&what)) return (*entry)->ready.contains(rank) && !(*entry)->held;
  return tables_.plans.find(std::get<PlanId>(what))->complete.contains(rank);
}

std::optional<TimePoint> StallMonitor::due() const {
  std::optional<TimePoint> due = clock_.earliest();
  const auto add = [&due](TimePoint at) { due = due ? std::min(*due, at) : at; };
  if (next_warning_) add(*next_warning_);
  if (next_search_) add(*next_search_);
  if (why_is_asked_) add(round_.until());
  if (warning_asked_ || search_asked_) add(round_.complete() ? round_.began() : round_.until());
  return due;
}

std::optional<StallStep> StallMonitor::advance(TimePoint now) {
  const std::optional<EntryOrPlan> what = clock_.due(now);
  if (!what) return std::nullopt;
  StallStep step;
  std::optional<StallTimer>& timer = timer_of(*what);
  const auto next = clock_.next(timer->patience);
  HORO_CHECK(next.has_value());
  const StallPatience patience = timer->patience.after(next->second);
  clock_.remove(*timer);
  timer.reset();
  switch (next->second) {
    case Stage::kWarn:
      newly_late_.push_back(*what);
      may_be_entangled_ = true;
      break;
    case Stage::kCheck:
      plan_search(now);
      break;
    case Stage::kDiagnose:
      diagnosis_due_ = true;
      if (const PlanId* plan = std::get_if<PlanId>(&*what)) {
        step.dissolve = PlanStall{*plan, patience};
        return step;
      }
      break;
    case Stage::kFail:
      expire(*what, patience, now);
      return step;
  }
  timer = clock_.add(patience, *what);
  return step;
}

std::optional<RequestDiagnosis> StallMonitor::ask(TimePoint now) {
  const bool fails_soon = std::exchange(diagnosis_due_, false);
  const bool warns = warning_is_due(now);
  const bool searches = search_is_due(now);
  warning_asked_ = warning_asked_ || warns;
  search_asked_ = search_asked_ || searches;
  const bool is_asked = why_ && !std::exchange(why_is_asked_, true);
  if (!fails_soon && !warns && !searches && !is_asked) return std::nullopt;
  // The error of a tensor that fails soon shows call sites from shortly before.
  if (fails_soon && !round_before_failure_) round_.abandon(now);
  const Duration fresh = warns || searches || is_asked ? Duration::zero() : clock_.diagnose_ahead();
  if (!round_.begin(now, config_.answer_timeout, tables_.left, fresh)) return std::nullopt;
  round_before_failure_ = fails_soon;
  return RequestDiagnosis{round_.question()};
}

void StallMonitor::expire(EntryOrPlan what, const StallPatience& patience, TimePoint now) {
  if (round_.over(now)) return expired_.push_back(what);
  StallPatience again = patience;
  again.passed[static_cast<std::size_t>(Stage::kFail)] = false;
  timer_of(what) = clock_.add_at(round_.until(), again, what);
}

void StallMonitor::take_answer(int from, const Diagnosis& answer, TimePoint now) {
  round_.take(from, answer, now);
  if (!round_.complete()) return;
  for (const EntryOrPlan& what : clock_.all()) {
    const StallPatience patience = timer_of(what)->patience;
    if (clock_.is_next(patience, Stage::kFail)) restart(what, patience);
  }
}

const RankSet& StallMonitor::submitted(EntryOrPlan what) const {
  if (Entry* const* entry = std::get_if<Entry*>(&what)) return (*entry)->ready;
  return tables_.plans.find(std::get<PlanId>(what))->complete;
}

RankSet StallMonitor::missing(EntryOrPlan what) const {
  if (Entry* const* entry = std::get_if<Entry*>(&what)) return {tables_.size, tables_.missing(**entry)};
  const Plan& plan = *tables_.plans.find(std::get<PlanId>(what));
  return tables_.members(plan.set).without(plan.complete);
}

StallGroup StallMonitor::describe(EntryOrPlan what) const {
  if (Entry* const* found = std::get_if<Entry*>(&what)) {
    const Entry& entry = **found;
    const std::string of_set = tables_.of_set(entry.name.set);
    return {{entry.name.name}, entry.ready.ranks(), tables_.missing(entry), false, {}, of_set};
  }
  const Plan& plan = *tables_.plans.find(std::get<PlanId>(what));
  const std::vector<int> missing = tables_.members(plan.set).without(plan.complete).ranks();
  StallGroup group{{}, plan.complete.ranks(), missing, true, {}, tables_.of_set(plan.set)};
  for (const TensorId id : plan.tensors) group.names.push_back(tables_.tensors.version_of(id)->entry->name.name);
  return group;
}

// For each of these ranks, the tensors and joins that it has reported and other ranks have not. One pass over all
// waiting entries and plans, whatever the number of ranks.
std::vector<RankWaits> StallMonitor::rank_waits(const std::set<int>& ranks,
                                                const std::vector<EntryOrPlan>& expired) const {
  std::vector<RankWaits> all;
  for (const int rank : ranks) {
    all.push_back({rank, {}, 0});
    for (const auto& [set, join] : tables_.joins.all()) {
      if (!join.ranks.contains(rank)) continue;
      all.back().shown.push_back({"join", tables_.members(set).without(join.ranks).ranks(), tables_.of_set(set)});
    }
  }
  std::vector<EntryOrPlan> waiting = clock_.all();
  waiting.insert(waiting.end(), expired.begin(), expired.end());
  for (const EntryOrPlan& what : waiting) {
    for (RankWaits& waits : all) {
      if (!waits_for_others(what, waits.rank)) continue;
      if (waits.shown.size() >= kMostShown) {
        ++waits.more;
        continue;
      }
      const StallGroup group = describe(what);
      waits.shown.push_back({"'" + group.names.front() + "'", group.missing, group.of_set});
      waits.more += group.names.size() - 1;
    }
  }
  return all;
}

// Adds to expired_ the entries that fail soon, so that tensors that began to wait together fail together.
void StallMonitor::add_failures_due_soon(TimePoint now) {
  for (const EntryOrPlan& what : clock_.all()) {
    std::optional<StallTimer>& timer = timer_of(what);
    const auto next = clock_.next(timer->patience);
    if (!next || next->second != Stage::kFail || next->first > now + clock_.together()) continue;
    clock_.remove(*timer);
    timer.reset();
    expired_.push_back(what);
  }
}

// Adds the failure of these entries, and of the units that they are part of. text: of tensors that the same ranks
// submitted and the same ranks did not; the call sites follow it.
void StallMonitor::add_failures(const std::vector<Entry*>& entries,
                                const std::function<std::string(const StallGroup&)>& text,
                                StallFailures& failures) const {
  std::map<std::pair<std::vector<int>, std::vector<int>>, std::vector<Entry*>> groups;
  for (Entry* entry : entries) groups[{entry->ready.ranks(), tables_.missing(*entry)}].push_back(entry);
  for (const auto& [key, alike] : groups) {
    const StallGroup group{{}, key.first, key.second, false, {}, ""};
    FailTensors item;
    item.text =
        text(group) + call_sites_text(round_.of(group.submitted), round_.of(group.missing), config_.answer_timeout);
    item.missing = group.missing;
    for (Entry* entry : alike) {
      const std::string head = stall_head(*ReadyTable::reports(*entry).front().spec, tables_.of_set(entry->name.set));
      item.tensors.push_back({entry->name, ReadyTable::is_once(*entry), head});
      for (const TensorName& unit : ReadyTable::units(*entry)) {
        failures.units.try_emplace(unit, UnitFailure{entry->name.name, head + item.text});
      }
    }
    failures.items.push_back(std::move(item));
    failures.entries.insert(failures.entries.end(), alike.begin(), alike.end());
  }
}

// A plan never expires: it is dissolved at the stage before.
StallFailures StallMonitor::take_expired(TimePoint now) {
  if (expired_.empty()) return {};
  add_failures_due_soon(now);
  const std::vector<EntryOrPlan> expired = std::exchange(expired_, {});
  std::vector<Entry*> entries;
  for (const EntryOrPlan& what : expired) {
    Entry* entry = std::get<Entry*>(what);
    if (!entry->held) entries.push_back(entry);
  }
  StallFailures failures;
  const auto text = [&](const StallGroup& group) {
    const std::set<int> missing(group.missing.begin(), group.missing.end());
    return stall_text(group, rank_waits(missing, expired), config_.stall_limit);
  };
  add_failures(entries, text, failures);
  for (const EntryOrPlan& what : expired) {
    const Entry& entry = *std::get<Entry*>(what);
    if (!entry.held) continue;
    for (const TensorName& unit : ReadyTable::units(entry)) {
      failures.units.try_emplace(unit, UnitFailure{"", unit_text(config_.stall_limit)});
    }
  }
  return failures;
}

}  // namespace horo
