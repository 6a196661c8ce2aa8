// What some ranks have submitted and others have not: first a warning, then, shortly before the limit, the question to
// all ranks where they are, and at the limit the end, with what they answered. A known plan is dissolved along with the
// question, because its tensors have to be told apart before anybody is blamed for one of them; an answer comes behind
// the reports that a rank makes for that reason.
#include <algorithm>
#include <map>
#include <tuple>
#include <utility>

#include "controller/leader.h"

namespace horo {
namespace {

// Warnings that are due within this part of their time are told together.
constexpr int kWarnTogether = 10;
constexpr std::size_t kMostAwaited = 3;

}  // namespace

// It waits for other ranks.
bool Leader::has(const Waiting& waiting, int rank) const {
  if (Entry* const* entry = std::get_if<Entry*>(&waiting)) return (*entry)->ready.contains(rank) && !(*entry)->held;
  return plans_.find(std::get<PlanId>(waiting))->complete.contains(rank);
}

std::optional<Wait>& Leader::wait_of(const Waiting& waiting) {
  if (Entry* const* entry = std::get_if<Entry*>(&waiting)) return (*entry)->waiting;
  return plans_.find(std::get<PlanId>(waiting))->waiting;
}

void Leader::timer_fired(TimePoint now) {
  std::vector<Waiting> warned;
  std::vector<Waiting> expired;
  while (const std::optional<Waiting> waiting = clock_.due(now)) next_stage(*waiting, warned, expired, now);
  if (!warned.empty()) warn(std::move(warned), now);
  if (!expired.empty()) give_up(std::move(expired), now);
}

void Leader::next_stage(const Waiting& waiting, std::vector<Waiting>& warned, std::vector<Waiting>& expired,
                        TimePoint now) {
  std::optional<Wait>& wait = wait_of(waiting);
  const StallPatience patience = wait->patience;
  clock_.remove(*wait);
  wait.reset();
  switch (patience.next) {
    case Stage::kWarn:
      wait = clock_.add({patience.limit, Stage::kAsk}, waiting);
      warned.push_back(waiting);
      return;
    case Stage::kAsk:
      ask(now);
      if (const PlanId* plan = std::get_if<PlanId>(&waiting)) return dissolve(*plan, {patience.limit, Stage::kFail});
      wait = clock_.add({patience.limit, Stage::kFail}, waiting);
      return;
    case Stage::kFail:
      if (!diagnosis_.complete() && now < diagnosis_.until()) {
        wait = clock_.add_at(diagnosis_.until(), patience, waiting);
      } else {
        expired.push_back(waiting);
      }
  }
}

void Leader::ask(TimePoint now) {
  if (diagnosis_.begin(now, config_.answer_timeout, left_))
    items_.emplace_back(RequestDiagnosis{diagnosis_.question()});
}

// The last answer ends the waiting of those whose limit has come already.
void Leader::take_answer(int from, const Diagnosis& answer) {
  diagnosis_.take(from, answer);
  if (!diagnosis_.complete()) return;
  for (const Waiting& waiting : clock_.all()) {
    std::optional<Wait>& wait = wait_of(waiting);
    if (wait->patience.next != Stage::kFail || wait->ticket.first == wait->patience.limit) continue;
    clock_.remove(*wait);
    wait = clock_.add(wait->patience, waiting);
  }
}

// Whoever has joined is not.
std::vector<int> Leader::missing_of(const Entry& entry) const {
  const RankSet missing = entry.needs.without(entry.ready);
  const RankSet* joined = this->joined(entry.name.set);
  return joined == nullptr ? missing.ranks() : missing.without(*joined).ranks();
}

Stalled Leader::stalled(const Waiting& waiting) const {
  if (Entry* const* waits = std::get_if<Entry*>(&waiting)) {
    const Entry& entry = **waits;
    return {{entry.name.name}, entry.ready.ranks(), missing_of(entry), false, {}, of_set(entry.name.set)};
  }
  const Plan& plan = *plans_.find(std::get<PlanId>(waiting));
  const std::vector<int> missing = members(plan.set).without(plan.complete).ranks();
  Stalled stalled{{}, plan.complete.ranks(), missing, true, {}, of_set(plan.set)};
  for (const TensorId id : plan.tensors) stalled.names.push_back(table_.place(id)->entry->name.name);
  return stalled;
}

// One pass over all that waits, whatever the number of ranks.
std::vector<Instead> Leader::instead_of(const std::set<int>& ranks, const std::vector<Waiting>& expired) const {
  std::vector<Instead> all;
  for (const int rank : ranks) {
    all.push_back({rank, {}, 0});
    for (const auto& [set, joins] : joins_) {
      if (!joins.ranks.contains(rank)) continue;
      all.back().first.push_back({"join", members(set).without(joins.ranks).ranks(), of_set(set)});
    }
  }
  std::vector<Waiting> waiting = clock_.all();
  waiting.insert(waiting.end(), expired.begin(), expired.end());
  for (const Waiting& one : waiting) {
    for (Instead& instead : all) {
      if (!has(one, instead.rank)) continue;
      if (instead.first.size() >= kMostAwaited) {
        ++instead.more;
        continue;
      }
      const Stalled stalled_one = stalled(one);
      instead.first.push_back({"'" + stalled_one.names.front() + "'", stalled_one.missing, stalled_one.of_set});
      instead.more += stalled_one.names.size() - 1;
    }
  }
  return all;
}

void Leader::warn(std::vector<Waiting> warned, TimePoint now) {
  const TimePoint soon = now + config_.stall_warning / kWarnTogether;
  for (const Waiting& waiting : clock_.all()) {
    std::optional<Wait>& wait = wait_of(waiting);
    if (wait->patience.next != Stage::kWarn || wait->ticket.first > soon) continue;
    clock_.remove(*wait);
    wait = clock_.add({wait->patience.limit, Stage::kAsk}, waiting);
    warned.push_back(waiting);
  }
  std::map<std::tuple<std::vector<int>, std::vector<int>, bool, std::string>, Stalled> groups;
  std::set<int> missing;
  for (const Waiting& waiting : warned) {
    const std::optional<Wait>& wait = wait_of(waiting);
    if (!wait) continue;  // dissolved meanwhile
    Stalled one = stalled(waiting);
    if (one.missing.empty()) continue;  // its unit's others are spoken of
    missing.insert(one.missing.begin(), one.missing.end());
    Stalled& group = groups.try_emplace({one.submitted, one.missing, one.partly, one.of_set}, one).first->second;
    if (group.waited != Duration::zero()) std::ranges::move(one.names, std::back_inserter(group.names));
    group.waited = std::max(group.waited, clock_.waited(wait->patience, now));
  }
  std::vector<Stalled> all;
  for (auto& [who, group] : groups) all.push_back(std::move(group));
  if (all.empty()) return;
  const std::vector<Instead> instead = instead_of(missing, {});
  warnings_.push_back(warning_text(all, instead, config_.stall_limit));
  dissolve_entangled(warned, instead);
}

// A rank that has not all of a plan, and has itself submitted what others have not, may never complete it: it can be
// waiting for those others, who wait for a tensor of the plan that it has and has not reported.
void Leader::dissolve_entangled(const std::vector<Waiting>& warned, const std::vector<Instead>& instead) {
  for (const Waiting& waiting : warned) {
    const PlanId* id = std::get_if<PlanId>(&waiting);
    if (id == nullptr || !wait_of(waiting)) continue;
    const RankSet& complete = plans_.find(*id)->complete;
    const auto entangled = [&](const Instead& one) { return !one.first.empty() && !complete.contains(one.rank); };
    if (std::any_of(instead.begin(), instead.end(), entangled)) dissolve(*id, wait_of(waiting)->patience);
  }
}

// What waits for the same ranks fails together, so that the call sites travel once. Units are failed last, when no
// entry that is spoken of here waits any more.
void Leader::give_up(std::vector<Waiting> expired, TimePoint now) {
  for (const Waiting& waiting : clock_.all()) {
    std::optional<Wait>& wait = wait_of(waiting);
    if (wait->patience.next != Stage::kFail || wait->patience.limit > now + clock_.together()) continue;
    stop_waiting(wait);
    expired.push_back(waiting);
  }
  std::map<std::pair<std::vector<int>, std::vector<int>>, std::vector<Entry*>> groups;
  std::map<TensorName, std::pair<std::string, std::string>> units;  // the first of each that fails, and why
  for (const Waiting& waiting : expired) {
    Entry* entry = std::get<Entry*>(waiting);
    if (!entry->held) groups[{entry->ready.ranks(), missing_of(*entry)}].push_back(entry);
  }
  for (const auto& [who, entries] : groups) {
    const auto& [submitted, missing] = who;
    const Stalled group{{}, submitted, missing, false, {}, ""};
    FailTensors item;
    item.text = stall_text(group, instead_of({missing.begin(), missing.end()}, expired), config_.stall_limit) +
                call_sites_text(diagnosis_.of(submitted), diagnosis_.of(missing), config_.answer_timeout);
    item.missing = missing;
    for (Entry* entry : entries) {
      const std::string head = stall_head(*ReadyTable::said(*entry).front().spec, of_set(entry->name.set));
      item.tensors.push_back({entry->name, ReadyTable::is_once(*entry), head});
      for (const TensorName& unit : ReadyTable::units(*entry)) {
        units.try_emplace(unit, entry->name.name, head + item.text);
      }
    }
    items_.emplace_back(std::move(item));
  }
  for (const Waiting& waiting : expired) {
    Entry& entry = *std::get<Entry*>(waiting);
    if (entry.held) {
      for (const TensorName& unit : ReadyTable::units(entry))
        units.try_emplace(unit, "", unit_text(config_.stall_limit));
      continue;
    }
    failed_[entry.name] = sent_ + 1;
    finish(entry);
  }
  for (const auto& [unit, why] : units) fail_unit(unit, why.first, why.second, true);
}

}  // namespace horo
