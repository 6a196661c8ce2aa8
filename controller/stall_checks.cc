// What the stall monitor does with the answers of the ranks: warnings and searches for deadlocks.
#include <algorithm>
#include <iterator>
#include <map>
#include <tuple>
#include <utility>

#include "controller/deadlock.h"
#include "controller/stall_monitor.h"

namespace horo {
namespace {

// A warning also covers those that are due within this part of config.stall_warning.
constexpr int kWarnTogether = 10;
// Searches begin at least this part of config.deadlock_limit apart.
constexpr int kSearchApart = 8;
// Pauses grow up to this.
constexpr std::chrono::minutes kLongestPause{10};

Duration longer(Duration pause, Duration first) {
  return std::min(2 * pause, std::max<Duration>(kLongestPause, first));
}

}  // namespace

std::vector<EntryOrPlan> StallMonitor::that_passed(Stage stage) const {
  std::vector<EntryOrPlan> passed = clock_.all();
  std::erase_if(passed, [&](const EntryOrPlan& what) { return !timer_of(what)->patience.has_passed(stage); });
  return passed;
}

// A warning is due for the first that are late, and later for those that the last one named. In between it is due for
// a tensor that waits for a rank which none of those waits for.
bool StallMonitor::warning_is_due(TimePoint now) {
  const std::vector<EntryOrPlan> newly_late = std::exchange(newly_late_, {});
  if (config_.stall_warning == Duration::zero() || warning_asked_) return false;
  if (next_warning_ && *next_warning_ <= now) {
    next_warning_.reset();
    if (!that_passed(Stage::kWarn).empty()) return true;
  }
  if (newly_late.empty()) return false;
  RankSet named(tables_.size);
  for (const EntryOrPlan& what : that_passed(Stage::kWarn)) {
    if (std::ranges::find(newly_late, what) == newly_late.end()) named.insert(missing(what));
  }
  const auto is_new = [&](const EntryOrPlan& what) {
    return timer_of(what) && !(next_warning_ ? named : RankSet(tables_.size)).covers(missing(what));
  };
  if (std::ranges::none_of(newly_late, is_new)) return false;
  next_warning_.reset();
  warning_pause_ = config_.stall_warning;
  return true;
}

// Those whose warning is due soon are covered by the one that is written now.
void StallMonitor::pass_warnings_due_soon(TimePoint now) {
  const TimePoint soon = now + config_.stall_warning / kWarnTogether;
  for (const EntryOrPlan& what : clock_.all()) {
    const StallPatience patience = timer_of(what)->patience;
    const auto next = clock_.next(patience);
    if (!next || next->second != Stage::kWarn || next->first > soon) continue;
    restart(what, patience.after(Stage::kWarn));
    may_be_entangled_ = true;
  }
}

void StallMonitor::warn(TimePoint now) {
  if (!warning_asked_ || !round_.over(now)) return;
  warning_asked_ = false;
  pass_warnings_due_soon(now);
  std::map<std::tuple<std::vector<int>, std::vector<int>, bool, std::string>, StallGroup> groups;
  std::set<int> missing;
  for (const EntryOrPlan& what : that_passed(Stage::kWarn)) {
    StallGroup one = describe(what);
    if (one.missing.empty()) continue;  // held: the warning names the incomplete tensors of its unit
    missing.insert(one.missing.begin(), one.missing.end());
    StallGroup& group = groups.try_emplace({one.submitted, one.missing, one.partly, one.of_set}, one).first->second;
    if (group.waited != Duration::zero()) std::ranges::move(one.names, std::back_inserter(group.names));
    group.waited = std::max(group.waited, now - timer_of(what)->patience.since);
  }
  if (groups.empty()) return;
  std::vector<StallGroup> all;
  for (auto& [key, group] : groups) all.push_back(std::move(group));
  const std::vector<CallSites> sites = round_.of({missing.begin(), missing.end()});
  warnings_.push_back(warning_text(all, rank_waits(missing, {}), sites, config_));
  next_warning_ = now + warning_pause_;
  warning_pause_ = longer(warning_pause_, config_.stall_warning);
}

std::vector<PlanStall> StallMonitor::take_entangled() {
  if (!std::exchange(may_be_entangled_, false)) return {};
  RankSet waiting(tables_.size);
  for (const EntryOrPlan& what : clock_.all()) {
    Entry* const* entry = std::get_if<Entry*>(&what);
    if (entry == nullptr || !(*entry)->held) waiting.insert(submitted(what));
  }
  for (const auto& [set, join] : tables_.joins.all()) waiting.insert(join.ranks);
  std::vector<PlanStall> entangled;
  for (const EntryOrPlan& what : that_passed(Stage::kWarn)) {
    const PlanId* plan = std::get_if<PlanId>(&what);
    if (plan != nullptr && missing(what).meets(waiting)) entangled.push_back({*plan, timer_of(what)->patience});
  }
  return entangled;
}

void StallMonitor::plan_search(TimePoint now) {
  search_pause_ = config_.deadlock_limit;
  const TimePoint at = std::max(now, last_search_ + Duration(config_.deadlock_limit) / kSearchApart);
  next_search_ = next_search_ ? std::min(*next_search_, at) : at;
}

bool StallMonitor::search_is_due(TimePoint now) {
  if (!next_search_ || *next_search_ > now) return false;
  next_search_.reset();
  return !search_asked_ && !that_passed(Stage::kCheck).empty();
}

// Ranks that wait for one another, but not for long enough, are looked at when they have. If there are none, a rank is
// busy, and may begin to wait at any time.
void StallMonitor::plan_next_search(TimePoint now, const RankSet& found) {
  const Duration limit = config_.deadlock_limit;
  const RankSet ranks = find_deadlock(tables_, round_.answers(), TimePoint::max());
  if (ranks.empty() || !found.empty()) {
    next_search_ = now + search_pause_;
    search_pause_ = longer(search_pause_, limit);
    return;
  }
  TimePoint proven = now + limit / 100 + std::chrono::milliseconds(1);
  for (const int rank : ranks.ranks()) {
    proven = std::max(proven, unchanged_since(round_.answers()[static_cast<std::size_t>(rank)]) + limit);
  }
  next_search_ = proven;
}

StallFailures StallMonitor::take_deadlocked(TimePoint now) {
  if (!search_asked_ || !round_.over(now)) return {};
  search_asked_ = false;
  last_search_ = now;
  const RankSet ranks = find_deadlock(tables_, round_.answers(), now - config_.deadlock_limit);
  plan_next_search(now, ranks);
  if (ranks.empty()) return {};
  std::vector<Entry*> entries;
  StallFailures failures;
  for (const EntryOrPlan& what : clock_.all()) {
    const RankSet others = missing(what);
    if (others.empty() || !ranks.covers(others)) continue;
    Entry* const* entry = std::get_if<Entry*>(&what);
    // A rank can wait for a tensor that it has not submitted, if the tensor is in the unit of one that it has.
    const bool in_unit = entry != nullptr && !ReadyTable::units(**entry).empty();
    if (!submitted(what).meets(ranks) && !in_unit) continue;
    if (entry != nullptr) {
      entries.push_back(*entry);
    } else {
      failures.dissolve.push_back({std::get<PlanId>(what), timer_of(what)->patience});
    }
  }
  if (!failures.dissolve.empty()) {
    next_search_ = now;
    return failures;
  }
  const auto text = [&](const StallGroup& group) {
    const std::set<int> missing(group.missing.begin(), group.missing.end());
    return deadlock_text(group, rank_waits(missing, {}), ranks.ranks(), config_.deadlock_limit);
  };
  add_failures(entries, text, failures);
  return failures;
}

}  // namespace horo
