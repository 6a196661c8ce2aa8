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

bool has(const Waiting& waiting, const PlanCache& plans, int rank) {
  if (Entry* const* entry = std::get_if<Entry*>(&waiting)) return (*entry)->ready.contains(rank);
  return plans.find(std::get<PlanId>(waiting))->complete.contains(rank);
}

}  // namespace

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
  const Patience patience = wait->patience;
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
      if (!inquiry_.complete() && now < inquiry_.until()) {
        wait = clock_.add_at(inquiry_.until(), patience, waiting);
      } else {
        expired.push_back(waiting);
      }
  }
}

void Leader::ask(TimePoint now) {
  if (inquiry_.begin(now, config_.answer_timeout, left_)) items_.emplace_back(AskWhere{inquiry_.question()});
}

// The last answer ends the waiting of those whose limit has come already.
void Leader::take_answer(int from, const Answer& answer) {
  inquiry_.take(from, answer);
  if (!inquiry_.complete()) return;
  for (const Waiting& waiting : clock_.all()) {
    std::optional<Wait>& wait = wait_of(waiting);
    if (wait->patience.next != Stage::kFail || wait->ticket.first == wait->patience.limit) continue;
    clock_.remove(*wait);
    wait = clock_.add(wait->patience, waiting);
  }
}

Stalled Leader::stalled(const Waiting& waiting) const {
  if (Entry* const* entry = std::get_if<Entry*>(&waiting)) {
    return {{(*entry)->name.name}, (*entry)->ready.ranks(), (*entry)->ready.missing(), false, {}};
  }
  const Plan& plan = *plans_.find(std::get<PlanId>(waiting));
  Stalled stalled{{}, plan.complete.ranks(), plan.complete.missing(), true, {}};
  for (const TensorId id : plan.tensors) stalled.names.push_back(table_.place(id)->entry->name.name);
  return stalled;
}

// One pass over all that waits, whatever the number of ranks.
std::vector<Instead> Leader::instead_of(const std::set<int>& ranks, const std::vector<Waiting>& expired) const {
  std::vector<Instead> all;
  for (const int rank : ranks) all.push_back({rank, {}, 0});
  std::vector<Waiting> waiting = clock_.all();
  waiting.insert(waiting.end(), expired.begin(), expired.end());
  for (const Waiting& one : waiting) {
    for (Instead& instead : all) {
      if (!has(one, plans_, instead.rank)) continue;
      if (instead.first.size() == kMostAwaited) {
        ++instead.more;
        continue;
      }
      const Stalled stalled_one = stalled(one);
      instead.first.push_back({stalled_one.names.front(), stalled_one.missing});
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
  std::map<std::tuple<std::vector<int>, std::vector<int>, bool>, Stalled> groups;
  std::set<int> missing;
  for (const Waiting& waiting : warned) {
    const std::optional<Wait>& wait = wait_of(waiting);
    if (!wait) continue;  // dissolved meanwhile
    Stalled one = stalled(waiting);
    missing.insert(one.missing.begin(), one.missing.end());
    Stalled& group = groups.try_emplace({one.submitted, one.missing, one.partly}, one).first->second;
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

// What waits for the same ranks fails together, so that the call sites travel once.
void Leader::give_up(std::vector<Waiting> expired, TimePoint now) {
  for (const Waiting& waiting : clock_.all()) {
    std::optional<Wait>& wait = wait_of(waiting);
    if (wait->patience.next != Stage::kFail || wait->patience.limit > now + clock_.together()) continue;
    clock_.remove(*wait);
    wait.reset();
    expired.push_back(waiting);
  }
  std::map<std::pair<std::vector<int>, std::vector<int>>, std::vector<Entry*>> groups;
  for (const Waiting& waiting : expired) {
    Entry* entry = std::get<Entry*>(waiting);
    groups[{entry->ready.ranks(), entry->ready.missing()}].push_back(entry);
  }
  std::vector<FailTensors> failures;
  for (const auto& [who, entries] : groups) {
    const auto& [submitted, missing] = who;
    const Stalled group{{}, submitted, missing, false, {}};
    FailTensors item;
    item.text = stall_text(group, instead_of({missing.begin(), missing.end()}, expired), config_.stall_limit) +
                whereabouts_text(inquiry_.of(submitted), inquiry_.of(missing), config_.answer_timeout);
    item.stalled = true;
    for (Entry* entry : entries) {
      item.tensors.push_back(
          {entry->name, ReadyTable::is_once(*entry), stall_head(*ReadyTable::said(*entry).front().spec)});
    }
    failures.push_back(std::move(item));
  }
  for (FailTensors& item : failures) items_.emplace_back(std::move(item));
  for (const Waiting& waiting : expired) {
    Entry& entry = *std::get<Entry*>(waiting);
    failed_[entry.name] = sent_ + 1;
    finish(entry);
  }
}

}  // namespace horo
