#include "controller/stall_monitor.h"

#include <algorithm>
#include <iterator>
#include <tuple>

namespace horo {
namespace {

// A warning also covers those that are due within this part of config.stall_warning.
constexpr int kWarnTogether = 10;
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
  std::erase(warned_, EntryOrPlan(&entry));
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

std::optional<StallTimer>& StallMonitor::timer_of(EntryOrPlan what) {
  if (Entry* const* entry = std::get_if<Entry*>(&what)) return (*entry)->stall_timer;
  return tables_.plans.find(std::get<PlanId>(what))->stall_timer;
}

// True if the rank has reported it, and it is not complete. A held entry is complete: it waits for other tensors.
bool StallMonitor::waits_for_others(EntryOrPlan what, int rank) const {
  if (Entry* const* entry = std::get_if<Entry*>(&what)) return (*entry)->ready.contains(rank) && !(*entry)->held;
  return tables_.plans.find(std::get<PlanId>(what))->complete.contains(rank);
}

std::optional<StallStep> StallMonitor::advance(TimePoint now) {
  const std::optional<EntryOrPlan> what = clock_.due(now);
  if (!what) return std::nullopt;
  StallStep step;
  std::optional<StallTimer>& timer = timer_of(*what);
  const StallPatience patience = timer->patience;
  clock_.remove(*timer);
  timer.reset();
  switch (patience.next) {
    case Stage::kWarn:
      timer = clock_.add({patience.limit, Stage::kDiagnose}, *what);
      warned_.push_back(*what);
      break;
    case Stage::kDiagnose:
      if (round_.begin(now, config_.answer_timeout, tables_.left)) step.request = RequestDiagnosis{round_.question()};
      if (const PlanId* plan = std::get_if<PlanId>(&*what)) {
        step.dissolve = PlanStall{*plan, {patience.limit, Stage::kFail}};
      } else {
        timer = clock_.add({patience.limit, Stage::kFail}, *what);
      }
      break;
    case Stage::kFail:
      expire(*what, patience, now);
  }
  return step;
}

void StallMonitor::expire(EntryOrPlan what, const StallPatience& patience, TimePoint now) {
  if (round_.complete() || now >= round_.until()) return expired_.push_back(what);
  timer_of(what) = clock_.add_at(round_.until(), patience, what);
}

void StallMonitor::take_answer(int from, const Diagnosis& answer) {
  round_.take(from, answer);
  if (!round_.complete()) return;
  for (const EntryOrPlan& what : clock_.all()) {
    std::optional<StallTimer>& timer = timer_of(what);
    if (timer->patience.next != Stage::kFail || timer->ticket.first == timer->patience.limit) continue;
    clock_.remove(*timer);
    timer = clock_.add(timer->patience, what);
  }
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

// Adds to warned_ the entries and plans whose warning is due soon, so that one warning covers them.
void StallMonitor::add_warnings_due_soon(TimePoint now) {
  const TimePoint soon = now + config_.stall_warning / kWarnTogether;
  for (const EntryOrPlan& what : clock_.all()) {
    std::optional<StallTimer>& timer = timer_of(what);
    if (timer->patience.next != Stage::kWarn || timer->ticket.first > soon) continue;
    clock_.remove(*timer);
    timer = clock_.add({timer->patience.limit, Stage::kDiagnose}, what);
    warned_.push_back(what);
  }
}

std::vector<PlanStall> StallMonitor::warn(TimePoint now) {
  if (warned_.empty()) return {};
  add_warnings_due_soon(now);
  const std::vector<EntryOrPlan> warned = std::exchange(warned_, {});
  std::map<std::tuple<std::vector<int>, std::vector<int>, bool, std::string>, StallGroup> groups;
  std::set<int> missing;
  for (const EntryOrPlan& what : warned) {
    const std::optional<StallTimer>& timer = timer_of(what);
    if (!timer) continue;  // a plan that was dissolved after its timer advanced
    StallGroup one = describe(what);
    if (one.missing.empty()) continue;  // held: the warning names the incomplete tensors of its unit
    missing.insert(one.missing.begin(), one.missing.end());
    StallGroup& group = groups.try_emplace({one.submitted, one.missing, one.partly, one.of_set}, one).first->second;
    if (group.waited != Duration::zero()) std::ranges::move(one.names, std::back_inserter(group.names));
    group.waited = std::max(group.waited, clock_.waited(timer->patience, now));
  }
  std::vector<StallGroup> all;
  for (auto& [key, group] : groups) all.push_back(std::move(group));
  if (all.empty()) return {};
  const std::vector<RankWaits> waits = rank_waits(missing, {});
  warnings_.push_back(warning_text(all, waits, config_.stall_limit));

  std::vector<PlanStall> entangled;
  for (const EntryOrPlan& what : warned) {
    const PlanId* id = std::get_if<PlanId>(&what);
    if (id == nullptr || !timer_of(what)) continue;
    const RankSet& complete = tables_.plans.find(*id)->complete;
    const auto waits_itself = [&](const RankWaits& one) { return !one.shown.empty() && !complete.contains(one.rank); };
    if (std::ranges::any_of(waits, waits_itself)) entangled.push_back({*id, timer_of(what)->patience});
  }
  return entangled;
}

// Adds to expired_ the entries that fail soon, so that tensors that began to wait together fail together.
void StallMonitor::add_failures_due_soon(TimePoint now) {
  for (const EntryOrPlan& what : clock_.all()) {
    std::optional<StallTimer>& timer = timer_of(what);
    if (timer->patience.next != Stage::kFail || timer->patience.limit > now + clock_.together()) continue;
    clock_.remove(*timer);
    timer.reset();
    expired_.push_back(what);
  }
}

// A plan never expires: it is dissolved at the stage before.
StallFailures StallMonitor::take_expired(TimePoint now) {
  if (expired_.empty()) return {};
  add_failures_due_soon(now);
  const std::vector<EntryOrPlan> expired = std::exchange(expired_, {});
  std::map<std::pair<std::vector<int>, std::vector<int>>, std::vector<Entry*>> groups;
  for (const EntryOrPlan& what : expired) {
    Entry* entry = std::get<Entry*>(what);
    if (!entry->held) groups[{entry->ready.ranks(), tables_.missing(*entry)}].push_back(entry);
  }
  StallFailures failures;
  for (const auto& [key, entries] : groups) {
    failures.items.push_back(failure(entries, expired));
    const FailTensors& item = failures.items.back();
    for (std::size_t i = 0; i < entries.size(); ++i) {
      for (const TensorName& unit : ReadyTable::units(*entries[i])) {
        failures.units.try_emplace(unit, UnitFailure{entries[i]->name.name, item.tensors[i].head + item.text});
      }
    }
    failures.entries.insert(failures.entries.end(), entries.begin(), entries.end());
  }
  for (const EntryOrPlan& what : expired) {
    const Entry& entry = *std::get<Entry*>(what);
    if (!entry.held) continue;
    for (const TensorName& unit : ReadyTable::units(entry)) {
      failures.units.try_emplace(unit, UnitFailure{"", unit_text(config_.stall_limit)});
    }
  }
  return failures;
}

// The failure of entries that the same ranks submitted and the same ranks did not: the call sites are sent once.
FailTensors StallMonitor::failure(const std::vector<Entry*>& entries, const std::vector<EntryOrPlan>& expired) const {
  const std::vector<int> submitted = entries.front()->ready.ranks();
  const std::vector<int> missing = tables_.missing(*entries.front());
  const StallGroup group{{}, submitted, missing, false, {}, ""};
  FailTensors item;
  item.text = stall_text(group, rank_waits({missing.begin(), missing.end()}, expired), config_.stall_limit) +
              call_sites_text(round_.of(submitted), round_.of(missing), config_.answer_timeout);
  item.missing = missing;
  for (Entry* entry : entries) {
    const std::string head = stall_head(*ReadyTable::reports(*entry).front().spec, tables_.of_set(entry->name.set));
    item.tensors.push_back({entry->name, ReadyTable::is_once(*entry), head});
  }
  return item;
}

}  // namespace horo
