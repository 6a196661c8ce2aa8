// Reports in, decisions out.
//
// A tensor's readiness is in one of two places. In the ready table, rank by rank: always right, costs a bit for each
// tensor and rank. Or kept in its plan: costs a bit for each plan and rank, and is used while every rank reports the
// plan as a whole. spread() moves it from the plan to the table; nothing moves it back, the next instance starts in the
// plan again. While a plan keeps a report, the table has none of the plan's tensors.
#include "controller/leader.h"

#include <algorithm>

#include "controller/bucketer.h"
#include "horo/base/error.h"

namespace horo {
namespace {

std::string rank_text(int rank) {
  return "rank " + std::to_string(rank);
}

}  // namespace

Leader::Leader(const CoordinatorConfig& config)
    : config_(config),
      table_(config.size, config.max_tensors),
      plans_(config.size, config.max_plans),
      clock_(config),
      inquiry_(config.size),
      left_(config.size),
      heard_(static_cast<std::size_t>(config.size)) {}

void Leader::take(int from, const UpMessage& message, TimePoint now) {
  std::uint64_t& heard = heard_[static_cast<std::size_t>(from)];
  if (message.heard < heard || message.heard > sent_) {
    throw ProtocolError(rank_text(from) + " applied " + std::to_string(message.heard) + " messages, between " +
                        std::to_string(heard) + " and " + std::to_string(sent_) + " expected");
  }
  heard = message.heard;
  for (const PlanId id : message.active) plan_of(from, id).active.insert(from);
  for (const Request& request : message.requests) {
    if (crossed_failure(from, name_of(request.spec))) continue;
    take_tensor(from, table_.place(request.spec), request.absent, now);
  }
  for (const TensorId id : message.present) take_tensor(from, place_of(from, id), false, now);
  for (const TensorId id : message.absent) take_tensor(from, place_of(from, id), true, now);
  for (const PlanId id : message.plans) take_plan(from, id, {}, now);
  for (const PartialPlan& partial : message.partial_plans) take_plan(from, partial.plan, partial.absent_slots, now);
  for (const Answer& answer : message.answers) take_answer(from, answer);
}

Plan& Leader::plan_of(int from, PlanId id) {
  if (Plan* plan = plans_.find(id)) return *plan;
  throw ProtocolError(rank_text(from) + " reported plan " + std::to_string(id) + ", which was never defined");
}

Place Leader::place_of(int from, TensorId id) const {
  if (const auto place = table_.place(id)) return *place;
  throw ProtocolError(rank_text(from) + " reported tensor number " + std::to_string(id) + ", which was never given");
}

// A rank that had not submitted the tensor when it failed fails its own when it hears of that. What it reports before
// it has heard belongs to the failed instance.
bool Leader::crossed_failure(int from, const TensorName& name) const {
  if (failed_.empty()) return false;
  const auto found = failed_.find(name);
  return found != failed_.end() && heard_[static_cast<std::size_t>(from)] < found->second;
}

bool Leader::crossed_failure(int from, const Plan& plan) const {
  if (failed_.empty()) return false;
  return std::any_of(plan.tensors.begin(), plan.tensors.end(),
                     [&](TensorId id) { return crossed_failure(from, table_.place(id)->entry->name); });
}

void Leader::take_tensor(int from, Place place, bool absent, TimePoint now) {
  Entry& entry = *place.entry;
  if (crossed_failure(from, entry.name)) return;
  const Plan* plan = plans_.find(entry.plan);
  if (plan != nullptr && plan->complete.contains(from)) {
    throw ProtocolError(rank_text(from) + " reported tensor '" + entry.name.name + "' alone and as a part of plan " +
                        std::to_string(entry.plan));
  }
  if (plan != nullptr && plan->active.contains(from)) dissolve(entry.plan, clock_.fresh(now));
  mark(place, from, absent, now);
  settle(entry, clock_.fresh(now));
}

void Leader::take_plan(int from, PlanId id, const std::vector<std::uint32_t>& absent_slots, TimePoint now) {
  Plan& plan = plan_of(from, id);
  if (!plan.active.contains(from) || plan.complete.contains(from)) {
    throw ProtocolError(rank_text(from) + " reported plan " + std::to_string(id) +
                        (plan.complete.contains(from) ? " twice" : " before it said that it uses it"));
  }
  if (!absent_slots.empty() && absent_slots.back() >= plan.tensors.size()) {
    throw ProtocolError(rank_text(from) + " reported slot " + std::to_string(absent_slots.back()) + " of plan " +
                        std::to_string(id) + ", which has " + std::to_string(plan.tensors.size()) + " tensors");
  }
  const bool keep = plan.live && plan.active.full() && plan.gathering == 0 && !crossed_failure(from, plan);
  if (!keep) {
    spread(plan, clock_.fresh(now));
    take_plan_singly(from, plan, absent_slots, now);
    return;
  }
  plan.mark(from, absent_slots, now);
  settle_plan(id, clock_.fresh(now));
}

void Leader::take_plan_singly(int from, const Plan& plan, const std::vector<std::uint32_t>& absent_slots,
                              TimePoint now) {
  for (std::uint32_t slot = 0; slot < plan.tensors.size(); ++slot) {
    const Place place = *table_.place(plan.tensors[slot]);
    if (crossed_failure(from, place.entry->name)) continue;
    mark(place, from, std::binary_search(absent_slots.begin(), absent_slots.end(), slot), now);
    settle(*place.entry, clock_.fresh(now));
  }
}

void Leader::mark(Place place, int rank, bool absent, TimePoint now) {
  const bool first = place.entry->ready.empty();
  table_.mark(place, rank, absent, now);
  Plan* plan = plans_.find(place.entry->plan);
  if (first && plan != nullptr) ++plan->gathering;
}

// After reports: the entry is complete, or can never be, or waits.
void Leader::settle(Entry& entry, const Patience& patience) {
  if (entry.ready.full()) {
    if (entry.waiting) clock_.remove(*entry.waiting);
    entry.waiting.reset();
    complete_.push_back(&entry);
    return;
  }
  const std::vector<int> left = left_without(entry.ready);
  if (!left.empty()) return fail(entry, left_text(entry.name.name, left));
  if (!entry.waiting) entry.waiting = clock_.add(patience, &entry);
}

void Leader::settle_plan(PlanId id, const Patience& patience) {
  Plan& plan = *plans_.find(id);
  if (plan.complete.full()) {
    if (plan.waiting) clock_.remove(*plan.waiting);
    plan.waiting.reset();
    complete_.push_back(id);
    return;
  }
  if (!left_without(plan.complete).empty()) return dissolve(id, patience);
  if (!plan.waiting) plan.waiting = clock_.add(patience, id);
}

// The reports that the plan keeps become reports of its tensors.
void Leader::spread(Plan& plan, Patience patience) {
  if (plan.complete.empty()) return;
  if (plan.waiting) {
    if (plan.waiting->patience.limit < patience.limit) patience = plan.waiting->patience;
    clock_.remove(*plan.waiting);
    plan.waiting.reset();
  }
  const std::vector<int> ranks = plan.complete.ranks();
  for (std::uint32_t slot = 0; slot < plan.tensors.size(); ++slot) {
    const Place place = *table_.place(plan.tensors[slot]);
    for (const int rank : ranks) {
      mark(place, rank, plan.is_absent(slot, rank), plan.since[static_cast<std::size_t>(rank)]);
    }
    settle(*place.entry, patience);
  }
  plan.clear();
}

void Leader::dissolve(PlanId id, const Patience& patience) {
  Plan& plan = *plans_.find(id);
  plan.live = false;
  items_.emplace_back(DissolvePlan{id});
  for (const TensorId tensor : plan.tensors) {
    Entry& entry = *table_.place(tensor)->entry;
    entry.plan = 0;
    ++entry.dissolved;
    if (!plan.complete_since.empty()) entry.complete_since = plan.complete_since;
    for (std::size_t rank = 0; rank < entry.since.size(); ++rank) {
      entry.since[rank] = std::max(entry.since[rank], plan.since[rank]);
    }
  }
  spread(plan, patience);
}

// All ranks fail it. Those that have yet to report this instance will do so before they hear of it, or not at all.
void Leader::fail(Entry& entry, std::string text) {
  if (!entry.ready.full()) failed_[entry.name] = sent_ + 1;
  items_.emplace_back(FailTensors{{{entry.name, ReadyTable::is_once(entry), ""}}, std::move(text), false});
  finish(entry);
}

void Leader::finish(Entry& entry) {
  if (entry.waiting) clock_.remove(*entry.waiting);
  entry.waiting.reset();
  if (Plan* plan = plans_.find(entry.plan)) --plan->gathering;
  table_.finish(entry);
}

// In the order in which they left.
std::vector<int> Leader::left_without(const RankSet& ready) const {
  std::vector<int> left;
  for (const int rank : left_order_) {
    if (!ready.contains(rank)) left.push_back(rank);
  }
  return left;
}

void Leader::rank_left(int rank, TimePoint now) {
  if (!left_.insert(rank)) return;
  left_order_.push_back(rank);
  inquiry_.excuse(rank);
  for (const PlanId id : plans_.live()) {
    if (!plans_.find(id)->complete.contains(rank)) dissolve(id, clock_.fresh(now));
  }
  for (const Waiting& waiting : clock_.all()) {
    Entry* const* entry = std::get_if<Entry*>(&waiting);
    if (entry == nullptr || (*entry)->ready.contains(rank)) continue;
    fail(**entry, left_text((*entry)->name.name, left_without((*entry)->ready)));
  }
}

std::optional<DownMessage> Leader::flush() {
  heard_[0] = sent_;  // this rank applies every message at once
  release_complete();
  for (const std::uint32_t set : ended_) define_plans(set);
  ended_.clear();
  forget_failures();
  if (items_.empty()) return std::nullopt;
  ++sent_;
  return DownMessage{std::exchange(items_, {})};
}

}  // namespace horo
