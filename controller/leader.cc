// Reports in, decisions out.
//
// A tensor's readiness is in one of two places. In the ready table, rank by rank: always right, costs a bit for each
// tensor and rank. Or kept in its plan: costs a bit for each plan and rank, and is used while every rank reports the
// plan as a whole. spread() moves it from the plan to the table; nothing moves it back, the next instance starts in the
// plan again. While a plan keeps a report, the table has none of the plan's tensors.
#include "controller/leader.h"

#include <algorithm>
#include <functional>

#include "horo/base/error.h"

namespace horo {
namespace {

std::string rank_text(int rank) {
  return "rank " + std::to_string(rank);
}

// What no hall would hand in.
void check_request(int from, const TensorSpec& spec) {
  const bool of_sets = spec.kind == CollectiveKind::kAddSet || spec.kind == CollectiveKind::kRemoveSet;
  const bool in_world = spec.set == 0 && spec.unit.empty() && !spec.shape.empty();
  const bool ascends = std::is_sorted(spec.shape.begin(), spec.shape.end(), std::less_equal<>());
  if ((of_sets && !(in_world && ascends)) || (!spec.unit.empty() && spec.unit_size < 1)) {
    throw ProtocolError(rank_text(from) + " reported '" + spec.name + "', which cannot be: " + describe(spec));
  }
}

}  // namespace

Leader::Leader(const CoordinatorConfig& config)
    : config_(config),
      sets_(config.size),
      table_(config.size, config.max_tensors),
      plans_(config.size, config.max_plans),
      clock_(config),
      diagnosis_(config.size),
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
    if (request.spec.kind != CollectiveKind::kJoin) take_request(from, request, now);
  }
  for (const TensorId id : message.present) take_number(from, id, false, now);
  for (const TensorId id : message.absent) take_number(from, id, true, now);
  for (const PlanId id : message.plans) take_plan(from, id, {}, now);
  for (const PartialPlan& partial : message.partial_plans) take_plan(from, partial.plan, partial.absent_slots, now);
  // What a rank submitted before it joined counts before its join.
  for (const Request& request : message.requests) {
    if (request.spec.kind == CollectiveKind::kJoin) take_join(from, request.spec, now);
  }
  for (const std::uint32_t set : message.ended) {
    if (!gone(from, set)) step_ended(set);
  }
  for (const Done& done : message.done) take_done(from, done);
  for (const Diagnosis& answer : message.answers) take_answer(from, answer);
}

Plan& Leader::plan_of(int from, PlanId id) {
  if (Plan* plan = plans_.find(id)) return *plan;
  throw ProtocolError(rank_text(from) + " reported plan " + std::to_string(id) + ", which was never defined");
}

void Leader::take_request(int from, const Request& request, TimePoint now) {
  const TensorSpec& spec = request.spec;
  if (gone(from, spec.set) || crossed_failure(from, name_of(spec))) return;
  check_request(from, spec);
  take_tensor(from, table_.place(spec), request.absent, now);
}

void Leader::take_number(int from, TensorId id, bool absent, TimePoint now) {
  const std::optional<Place> place = table_.place(id);
  const bool forgotten = place && place->entry == nullptr;  // of a set that is no more
  if (forgotten && heard_[static_cast<std::size_t>(from)] < last_removal_) return;
  if (!place || forgotten) {
    throw ProtocolError(rank_text(from) + " reported tensor number " + std::to_string(id) + ", which was never given");
  }
  take_tensor(from, *place, absent, now);
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

// name: of the tensor that is reported.
void Leader::check_member(int from, std::uint32_t set, const std::string& name) const {
  const RankSet* joined = this->joined(set);
  const bool has_joined = joined != nullptr && joined->contains(from);
  if (members(set).contains(from) && !has_joined) return;
  throw ProtocolError(rank_text(from) + " reported tensor '" + name + "' of " + set_text(set, sets_.find(set)->name) +
                      (has_joined ? ", which it has joined" : ", of which it is no member"));
}

void Leader::take_tensor(int from, Place place, bool absent, TimePoint now) {
  Entry& entry = *place.entry;
  if (crossed_failure(from, entry.name)) return;
  check_member(from, entry.name.set, entry.name.name);
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
  if (gone(from, plan.set)) return;
  check_member(from, plan.set, table_.place(plan.tensors.front())->entry->name.name);
  if (!plan.active.contains(from) || plan.complete.contains(from)) {
    throw ProtocolError(rank_text(from) + " reported plan " + std::to_string(id) +
                        (plan.complete.contains(from) ? " twice" : " before it said that it uses it"));
  }
  if (!absent_slots.empty() && absent_slots.back() >= plan.tensors.size()) {
    throw ProtocolError(rank_text(from) + " reported slot " + std::to_string(absent_slots.back()) + " of plan " +
                        std::to_string(id) + ", which has " + std::to_string(plan.tensors.size()) + " tensors");
  }
  const bool keep =
      plan.live && plan.active.covers(members(plan.set)) && plan.gathering == 0 && !crossed_failure(from, plan);
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
  Entry& entry = *place.entry;
  const Version& version = entry.versions[place.version];
  const bool first = entry.ready.empty();
  if (version.ranks.empty()) entry.needs.insert(needs(version.spec));
  if (!entry.needs.contains(rank)) {
    throw ProtocolError(rank_text(rank) + " reported tensor '" + entry.name.name + "' (" + describe(version.spec) +
                        "), in which it has no part");
  }
  table_.mark(place, rank, absent, now);
  Plan* plan = plans_.find(entry.plan);
  if (first && plan != nullptr) ++plan->gathering;
}

void Leader::stop_waiting(std::optional<Wait>& waiting) {
  if (waiting) clock_.remove(*waiting);
  waiting.reset();
}

// After reports: the entry is complete, or can never be, or waits.
void Leader::settle(Entry& entry, const StallPatience& patience) {
  if (ReadyTable::complete(entry, joined(entry.name.set))) return complete(entry, patience);
  const std::vector<int> left = left_without(entry.needs, entry.ready, entry.name.set);
  if (!left.empty()) return fail(entry, left_text(entry.name.name, left, of_set(entry.name.set)));
  if (!entry.waiting) entry.waiting = clock_.add(patience, &entry);
}

void Leader::complete(Entry& entry, const StallPatience& patience) {
  const StallPatience left = entry.waiting ? entry.waiting->patience : patience;
  stop_waiting(entry.waiting);
  const std::string trouble = trouble_of(entry);
  if (!trouble.empty()) return fail(entry, trouble);
  const TensorSpec& spec = ReadyTable::agreed(entry)->spec;
  spec.unit.empty() ? let_go(entry, spec.priority) : hold(entry, spec, left);
}

// It may be released from now on. A priority counts once ranks agree on it.
void Leader::let_go(Entry& entry, std::int32_t priority) {
  if (Flow::orders(ReadyTable::agreed(entry)->spec.kind)) flows_[entry.name.set].hear(priority);
  entry.turn = ++turns_;
  entry.priority = priority;
  complete_.push_back({&entry});
}

// Why what is complete cannot be run; empty if it can.
std::string Leader::trouble_of(Entry& entry) const {
  const Version* version = ReadyTable::agreed(entry);
  if (version == nullptr) return mismatch_text(ReadyTable::said(entry), of_set(entry.name.set));
  const CollectiveKind kind = version->spec.kind;
  const bool with_less = kind == CollectiveKind::kAllReduce || kind == CollectiveKind::kBarrier;
  if (with_less || entry.ready.covers(entry.needs)) return "";
  return joined_text(version->spec, entry.needs.without(entry.ready).ranks(), of_set(entry.name.set));
}

void Leader::settle_plan(PlanId id, const StallPatience& patience) {
  Plan& plan = *plans_.find(id);
  if (plan.complete.covers(members(plan.set))) {
    stop_waiting(plan.waiting);
    complete_.push_back({id});
    return;
  }
  if (!left_without(members(plan.set), plan.complete, plan.set).empty()) return dissolve(id, patience);
  if (!plan.waiting) plan.waiting = clock_.add(patience, id);
}

// The reports that the plan keeps become reports of its tensors.
void Leader::spread(Plan& plan, StallPatience patience) {
  if (plan.complete.empty()) return;
  if (plan.waiting) {
    if (plan.waiting->patience.limit < patience.limit) patience = plan.waiting->patience;
    clock_.remove(*plan.waiting);
    plan.waiting.reset();
  }
  const std::vector<int> ranks = plan.complete.ranks();
  for (std::uint32_t slot = 0; slot < plan.tensors.size(); ++slot) {
    for (const int rank : ranks) {
      mark(*table_.place(plan.tensors[slot]), rank, plan.is_absent(slot, rank),
           plan.since[static_cast<std::size_t>(rank)]);
    }
  }
  plan.clear();
  for (const TensorId id : plan.tensors) {
    Entry& entry = *table_.place(id)->entry;
    if (!entry.ready.empty()) settle(entry, patience);  // else it failed with one before it
  }
}

void Leader::dissolve(PlanId id, const StallPatience& patience, std::uint64_t steps_apart) {
  Plan& plan = *plans_.find(id);
  plan.live = false;
  std::erase_if(complete_, [id](const Complete& one) { return one.what == Waiting(id); });  // its tensors are instead
  items_.emplace_back(DissolvePlan{id});
  for (const TensorId tensor : plan.tensors) {
    Entry& entry = *table_.place(tensor)->entry;
    entry.plan = 0;
    if (steps_apart > 0) entry.apart_until = steps_[plan.set] + steps_apart;
    if (!plan.complete_since.empty()) entry.complete_since = plan.complete_since;
    for (std::size_t rank = 0; rank < entry.since.size(); ++rank) {
      entry.since[rank] = std::max(entry.since[rank], plan.since[rank]);
    }
  }
  spread(plan, patience);
}

// All ranks fail it, and the units of which it is. Those that have yet to report this instance will do so before they
// hear of it, or not at all.
void Leader::fail(Entry& entry, const std::string& text) {
  const TensorName name = entry.name;
  const std::set<TensorName> units = ReadyTable::units(entry);
  if (!entry.ready.covers(entry.needs)) failed_[name] = sent_ + 1;
  items_.emplace_back(FailTensors{{{name, ReadyTable::is_once(entry), ""}}, text, {}});
  finish(entry);
  for (const TensorName& unit : units) fail_unit(unit, name.name, text, false);
}

void Leader::finish(Entry& entry) {
  stop_waiting(entry.waiting);
  if (Plan* plan = plans_.find(entry.plan)) --plan->gathering;
  table_.finish(entry);
}

// In the order in which they left.
std::vector<int> Leader::left_without(const RankSet& needs, const RankSet& ready, std::uint32_t set) const {
  const RankSet* joined = this->joined(set);
  std::vector<int> left;
  for (const int rank : left_order_) {
    const bool excused = !needs.contains(rank) || (joined != nullptr && joined->contains(rank));
    if (!excused && !ready.contains(rank)) left.push_back(rank);
  }
  return left;
}

std::vector<TensorName> Leader::waiting_names() const {
  std::vector<TensorName> names;
  for (const Waiting& waiting : clock_.all()) {
    if (Entry* const* entry = std::get_if<Entry*>(&waiting)) names.push_back((*entry)->name);
  }
  return names;
}

void Leader::rank_left(int rank, TimePoint now) {
  if (!left_.insert(rank)) return;
  left_order_.push_back(rank);
  diagnosis_.excuse(rank);
  for (const PlanId id : plans_.live()) {
    const Plan& plan = *plans_.find(id);
    if (members(plan.set).contains(rank) && !plan.complete.contains(rank)) dissolve(id, clock_.fresh(now));
  }
  for (const TensorName& name : waiting_names()) {
    Entry* entry = table_.find(name);
    if (entry == nullptr || !entry->waiting) continue;  // failed with its unit
    const std::vector<int> left = left_without(entry->needs, entry->ready, name.set);
    if (!left.empty()) fail(*entry, left_text(name.name, left, of_set(name.set)));
  }
  for (const auto& [set, process_set] : sets_.all()) fail_lost_join(set);
  for (auto& [set, flow] : flows_) {
    if (members(set).contains(rank)) flow.open();  // perhaps nobody tells what is done any more
  }
}

std::optional<DownMessage> Leader::flush() {
  heard_[0] = sent_;  // this rank applies every message at once
  release_complete();
  end_joins();
  for (const auto& [set, released] : ended_) define_plans(set, released);
  ended_.clear();
  forget_failures();
  if (items_.empty()) return std::nullopt;
  ++sent_;
  return DownMessage{std::exchange(items_, {})};
}

}  // namespace horo
