#include "controller/leader.h"

#include <algorithm>
#include <functional>
#include <utility>

#include "controller/bucketer.h"
#include "horo/base/error.h"

namespace horo {
namespace {

std::string rank_text(int rank) {
  return "rank " + std::to_string(rank);
}

// Throws for a request that the engine never submits.
void check_request(int from, const TensorSpec& spec) {
  const bool of_sets = spec.kind == CollectiveKind::kAddSet || spec.kind == CollectiveKind::kRemoveSet;
  const bool in_world = spec.set == 0 && spec.unit.empty() && !spec.shape.empty();
  const bool ascends = std::is_sorted(spec.shape.begin(), spec.shape.end(), std::less_equal<>());
  const bool has_rounds = spec.round_stream != 0;
  const bool may_have_rounds = (spec.kind == CollectiveKind::kAllReduce && spec.stepwise && !spec.once) ||
                               (spec.kind == CollectiveKind::kBarrier && !spec.once);
  const bool ends_epoch = spec.kind == CollectiveKind::kRebuild;
  if ((of_sets && !(in_world && ascends)) || (ends_epoch && (spec.set != 0 || !spec.unit.empty())) ||
      (!spec.unit.empty() && spec.unit_size < 1) || (has_rounds && !may_have_rounds) ||
      spec.by_members != (spec.channel == kMembersChannel) || (spec.by_members && !of_sets)) {
    throw ProtocolError(rank_text(from) + " reported '" + spec.name + "', which cannot be: " + describe(spec));
  }
}

// The place among what is released last; 0: not among it.
int place_of_end(Entry& entry) {
  const TensorSpec& spec = ReadyTable::agreed(entry)->spec;
  if (spec.kind == CollectiveKind::kBarrier) return spec.round_stream != 0 ? 1 : 0;
  if (spec.kind == CollectiveKind::kRemoveSet) return 2;
  return spec.kind == CollectiveKind::kRebuild ? 3 : 0;
}

// The entry, if all its ranks have reported it with a value; else null.
Entry* present_everywhere(const EntryOrPlan& complete) {
  Entry* const* entry = std::get_if<Entry*>(&complete);
  return entry != nullptr && (*entry)->absent.empty() ? *entry : nullptr;
}

// The ranks that take part in the collective; empty: all members of the set.
std::vector<int> participants(Entry& entry) {
  const bool is_pair = ReadyTable::agreed(entry)->spec.kind == CollectiveKind::kSendRecv;
  return !is_pair && entry.ready.covers(entry.needs) ? std::vector<int>() : entry.ready.ranks();
}

std::chrono::microseconds microseconds_of(std::uint64_t age_us) {
  constexpr std::uint64_t kLongest = std::uint64_t{1} << 42;  // 50 days
  return std::chrono::microseconds(static_cast<std::int64_t>(std::min(age_us, kLongest)));
}

// The rank that was ready last for some tensors. A rank that is not needed was ready for an earlier instance.
class LatestRank {
 public:
  // By rank: when it was ready; min(): never.
  void look_at(const std::vector<TimePoint>& since) {
    const auto latest = std::ranges::max_element(since);
    if (latest == since.end() || *latest <= since_) return;
    since_ = *latest;
    rank_ = static_cast<int>(latest - since.begin());
  }
  LastReady at(TimePoint now) const {
    return rank_ < 0 ? LastReady{} : LastReady{rank_, microseconds_between(since_, now)};
  }

 private:
  TimePoint since_ = TimePoint::min();
  int rank_ = -1;
};

}  // namespace

Leader::Leader(const CoordinatorConfig& config, SetTable sets)
    : config_(config),
      tables_(config, std::move(sets)),
      progress_(config.size),
      step_plans_(config_, tables_),
      agreement_(config_, tables_, progress_, step_plans_, items_),
      forgetting_(config_, tables_, progress_),
      ways_(static_cast<std::size_t>(config.size)) {}

void Leader::take(int from, const UpMessage& message, TimePoint now) {
  progress_.take(from, message.applied);
  const TimePoint sent = now - ways_[static_cast<std::size_t>(from)];
  ready_ = sent - microseconds_of(message.age_us);
  if (!message.figures.empty()) {
    figures_.push_back({from, message.figures, sent - microseconds_of(message.figures_age_us)});
  }
  for (const PlanId id : message.active) plan_of(from, id).active.insert(from);
  take_rounds(from, message.rounds);
  for (const Request& request : message.requests) {
    if (request.lost) {
      take_lost(from, name_of(request.spec));
    } else if (request.spec.kind != CollectiveKind::kJoin) {
      take_request(from, request, now);
    }
  }
  for (const TensorId id : message.present) take_number(from, id, false, now);
  for (const TensorId id : message.absent) take_number(from, id, true, now);
  for (const PlanId id : message.plans) take_plan(from, id, {}, now);
  for (const PartialPlan& partial : message.partial_plans) take_plan(from, partial.plan, partial.absent_slots, now);
  take_failed_rounds(from, message.failed_rounds, now);
  // Joins are taken last, because a rank submitted the other requests of the message before it joined.
  for (const Request& request : message.requests) {
    if (request.spec.kind == CollectiveKind::kJoin) take_join(from, request.spec, now);
  }
  for (const std::uint32_t set : message.ended) {
    if (!is_stale(from, set)) step_ended(set);
  }
  for (const Done& done : message.done) {
    if (!is_stale(from, done.set)) agreement_.queue().finished(done.set, done.tensors);
  }
  for (const Diagnosis& answer : message.answers) agreement_.stalls().take_answer(from, answer, now);
}

void Leader::take_rounds(int from, const std::vector<RoundBegun>& rounds) {
  for (const RoundBegun& begun : rounds) {
    if (is_stale(from, begun.stream.set)) continue;
    check_in_set(from, begun.stream.set, "the begin of a round");
    tables_.rounds.begin(from, begun, tables_.members(begun.stream.set));
  }
}

void Leader::take_failed_rounds(int from, const std::vector<RoundFailed>& failed_rounds, TimePoint now) {
  for (const RoundFailed& failed : failed_rounds) {
    if (is_stale(from, failed.stream.set)) continue;
    check_in_set(from, failed.stream.set, "the failure of a round");
    if (tables_.joins.contains(failed.stream.set, from)) continue;
    agreement_.give_up(from, failed, agreement_.stalls().fresh(now));
  }
}

void Leader::check_in_set(int from, std::uint32_t set, const char* what) const {
  if (tables_.members(set).contains(from)) return;
  throw ProtocolError(rank_text(from) + " reported " + what + " of " + set_text(set, tables_.sets.find(set)->name) +
                      ", of which it is no member");
}

Plan& Leader::plan_of(int from, PlanId id) {
  if (Plan* plan = tables_.plans.find(id)) return *plan;
  throw ProtocolError(rank_text(from) + " reported plan " + std::to_string(id) + ", which was never defined");
}

// True if the set was removed, and the rank had not applied the removal when it reported.
bool Leader::is_stale(int from, std::uint32_t set) const {
  if (tables_.sets.find(set) != nullptr) return false;
  const bool existed = tables_.sets.existed(set);
  if (existed && progress_.crosses_removal(from)) return true;
  throw ProtocolError(rank_text(from) + " reported something of process set " + std::to_string(set) + ", which was " +
                      (existed ? "removed" : "never added"));
}

// It fails once, on all members. A report of a rank that has applied that failure is of the next instance.
void Leader::take_lost(int from, const TensorName& name) {
  if (is_stale(from, name.set)) return;
  check_member(from, name.set, name.name);
  if (progress_.crosses_failure(from, name)) return;
  progress_.tensor_failed(name);
  if (Entry* entry = tables_.tensors.find(name)) {
    agreement_.queue().remove(entry);
    agreement_.finish(*entry);
  }
  FailTensors item{{{name, true, lost_head(name.name, tables_.of_set(name.set)), true}}, lost_text(), {}};
  item.missing = tables_.sets.find(name.set)->ranks;
  items_.emplace_back(std::move(item));
}

void Leader::take_request(int from, const Request& request, TimePoint now) {
  const TensorSpec& spec = request.spec;
  if (is_stale(from, spec.set) || progress_.crosses_failure(from, name_of(spec))) return;
  check_request(from, spec);
  take_tensor(from, tables_.tensors.find_or_add(spec), request.absent, now);
}

void Leader::take_number(int from, TensorId id, bool absent, TimePoint now) {
  if (const TensorSpec* spec = forgetting_.spec_of(from, id)) return take_request(from, {*spec, absent}, now);
  const std::optional<VersionRef> ref = tables_.tensors.version_of(id);
  const bool in_removed_set = ref && ref->entry == nullptr;
  if (in_removed_set && progress_.crosses_removal(from)) return;
  if (!ref || in_removed_set) {
    throw ProtocolError(rank_text(from) + " reported tensor number " + std::to_string(id) +
                        ", which was never given or is forgotten");
  }
  take_tensor(from, *ref, absent, now);
}

// If a tensor fails before a rank has submitted it, the rank fails its own submission when it applies the failure. A
// report that the rank sent before that belongs to the failed instance.
bool Leader::crosses_failure(int from, const Plan& plan) const {
  if (!progress_.has_failures()) return false;
  return std::any_of(plan.tensors.begin(), plan.tensors.end(), [&](TensorId id) {
    return progress_.crosses_failure(from, tables_.tensors.version_of(id)->entry->name);
  });
}

// name: the reported tensor.
void Leader::check_member(int from, std::uint32_t set, const std::string& name) const {
  const bool has_joined = tables_.joins.contains(set, from);
  if (tables_.members(set).contains(from) && !has_joined) return;
  throw ProtocolError(rank_text(from) + " reported tensor '" + name + "' of " +
                      set_text(set, tables_.sets.find(set)->name) +
                      (has_joined ? ", which it has joined" : ", of which it is no member"));
}

void Leader::take_tensor(int from, VersionRef ref, bool absent, TimePoint now) {
  Entry& entry = *ref.entry;
  if (progress_.crosses_failure(from, entry.name)) return;
  check_member(from, entry.name.set, entry.name.name);
  const Plan* plan = tables_.plans.find(entry.plan);
  if (plan != nullptr && plan->complete.contains(from)) {
    throw ProtocolError(rank_text(from) + " reported tensor '" + entry.name.name + "' alone and as a part of plan " +
                        std::to_string(entry.plan));
  }
  const StallPatience patience = agreement_.stalls().fresh(now);
  if (plan != nullptr && plan->active.contains(from)) agreement_.dissolve(entry.plan, patience);
  if (agreement_.report(ref, from, absent, ready_)) agreement_.update(entry, patience);
}

void Leader::take_plan(int from, PlanId id, const std::vector<std::uint32_t>& absent_slots, TimePoint now) {
  Plan& plan = plan_of(from, id);
  if (is_stale(from, plan.set)) return;
  if (plan.tensors.empty()) {
    throw ProtocolError(rank_text(from) + " reported plan " + std::to_string(id) + ", which was dissolved before");
  }
  check_member(from, plan.set, tables_.tensors.version_of(plan.tensors.front())->entry->name.name);
  if (!plan.active.contains(from) || plan.complete.contains(from)) {
    throw ProtocolError(rank_text(from) + " reported plan " + std::to_string(id) +
                        (plan.complete.contains(from) ? " twice" : " before it reported that it uses the plan"));
  }
  if (!absent_slots.empty() && absent_slots.back() >= plan.tensors.size()) {
    throw ProtocolError(rank_text(from) + " reported slot " + std::to_string(absent_slots.back()) + " of plan " +
                        std::to_string(id) + ", which has " + std::to_string(plan.tensors.size()) + " tensors");
  }
  const bool all_active = plan.active.covers(tables_.members(plan.set));
  const StallPatience patience = agreement_.stalls().fresh(now);
  const bool is_whole = plan.live && all_active && plan.gathering == 0 && !crosses_failure(from, plan);
  if (is_whole && tables_.rounds.fits(from, plan.set, plan.rounds)) {
    plan.mark(from, absent_slots, ready_);
    tables_.rounds.add(from, plan.set, plan.rounds);
    return agreement_.update_plan(id, patience);
  }
  agreement_.split(plan, patience);
  take_plan_tensors(from, plan, absent_slots, now);
}

void Leader::take_plan_tensors(int from, const Plan& plan, const std::vector<std::uint32_t>& absent_slots,
                               TimePoint now) {
  for (std::uint32_t slot = 0; slot < plan.tensors.size(); ++slot) {
    const VersionRef ref = *tables_.tensors.version_of(plan.tensors[slot]);
    if (progress_.crosses_failure(from, ref.entry->name)) continue;
    const bool absent = std::binary_search(absent_slots.begin(), absent_slots.end(), slot);
    if (agreement_.report(ref, from, absent, ready_)) agreement_.update(*ref.entry, agreement_.stalls().fresh(now));
  }
}

void Leader::rank_left(int rank, TimePoint now) {
  if (!tables_.left.insert(rank)) return;
  tables_.left_order.push_back(rank);
  progress_.rank_left(rank);
  agreement_.rank_left(rank, now);
  for (const auto& [set, process_set] : tables_.sets.all()) fail_lost_join(set);
}

// In an elastic job the stream begins when all ranks have reported. A rank that could not enter the epoch, because it
// ended at once, has then missed nothing that the others have applied.
std::optional<DownMessage> Leader::flush(TimePoint now) {
  if (is_over_ || (config_.elastic && !progress_.have_all_reported())) return std::nullopt;
  progress_.leader_applied_all();
  release_complete(now);
  if (!is_over_) {
    end_joins();
    for (DefinePlan& plan : step_plans_.define()) items_.emplace_back(std::move(plan));
    progress_.forget_failures(tables_.left);
    forgetting_.choose(items_);
  }
  if (items_.empty()) return std::nullopt;
  progress_.message_sent();
  return DownMessage{std::exchange(items_, {}), config_.has_one_clock ? now : TimePoint{}};
}

// The barriers of rounds come last, because a barrier commits what is released of its round before it. The ends of sets
// follow, so that everything that is complete in a set is released before the set ends, and then the end of the epoch.
void Leader::release_complete(TimePoint now) {
  std::vector<Entry*> fusible;
  std::vector<Fusible> tensors;
  std::vector<bool> is_fusible;
  const std::vector<EntryOrPlan> all = agreement_.queue().take();
  for (const EntryOrPlan& complete : all) {
    Entry* entry = present_everywhere(complete);
    const TensorSpec* spec = entry == nullptr ? nullptr : &ReadyTable::agreed(*entry)->spec;
    is_fusible.push_back(spec != nullptr && spec->kind == CollectiveKind::kAllReduce);
    if (!is_fusible.back()) continue;
    fusible.push_back(entry);
    tensors.push_back({spec, participants(*entry)});
  }
  // The least size of a bucket is its greatest: all of these tensors are ready, so a smaller bucket starts no sooner.
  const BucketLimits limits{config_.bucket_bytes, config_.credit_bytes / 2, config_.bucket_bytes, config_.elastic};
  const auto buckets = make_buckets(tensors, limits);
  auto bucket = buckets.begin();
  std::size_t position = 0;  // in fusible
  std::vector<Entry*> ends;
  for (std::size_t i = 0; i < all.size(); ++i) {
    if (!is_fusible[i]) {
      const PlanId* id = std::get_if<PlanId>(&all[i]);
      id != nullptr ? release_plan(*id, now) : release_alone(*std::get<Entry*>(all[i]), ends, now);
    } else if (position++; bucket != buckets.end() && bucket->front() == position - 1) {
      std::vector<Entry*> entries;
      for (const std::size_t at : *bucket++) entries.push_back(fusible[at]);
      release_bucket(entries, {}, now);
    }
  }
  for (Entry* end : ends) release_end(*end, now);
}

void Leader::release_end(Entry& end, TimePoint now) {
  const CollectiveKind kind = ReadyTable::agreed(end)->spec.kind;
  if (kind == CollectiveKind::kRemoveSet) return end_set(end);
  if (kind == CollectiveKind::kRebuild) return end_epoch(end, now);
  release_bucket({&end}, end.absent.ranks(), now);
}

void Leader::release_alone(Entry& entry, std::vector<Entry*>& ends, TimePoint now) {
  if (ReadyTable::agreed(entry)->spec.kind == CollectiveKind::kAddSet) return define_set(entry);
  if (place_of_end(entry) > 0) {
    const auto precedes = [](Entry* a, Entry* b) { return place_of_end(*a) < place_of_end(*b); };
    ends.insert(std::upper_bound(ends.begin(), ends.end(), &entry, precedes), &entry);
    return;
  }
  if (entry.absent.count() == entry.ready.count()) return skip(entry);
  release_bucket({&entry}, entry.absent.ranks(), now);
}

void Leader::release_bucket(const std::vector<Entry*>& entries, std::vector<int> absent_ranks, TimePoint now) {
  Entry& first = *entries.front();
  ReleaseTensors item{{}, std::move(absent_ranks), participants(first)};
  item.reports_done = agreement_.queue().needs_done(first.name.set, ReadyTable::agreed(first)->spec.kind);
  LatestRank latest;
  for (Entry* entry : entries) {
    latest.look_at(entry->since);
    Version& version = *ReadyTable::agreed(*entry);
    item.tensors.push_back(tables_.tensors.refer(*entry, version));
    step_plans_.add(*entry, version);
    agreement_.finish(*entry);
  }
  item.last = latest.at(now);
  items_.emplace_back(std::move(item));
}

// Tensors that are skipped one after the other by the same ranks share one item.
void Leader::skip(Entry& entry) {
  std::vector<int> ranks = participants(entry);
  TensorRef ref = tables_.tensors.refer(entry, *ReadyTable::agreed(entry));
  agreement_.finish(entry);
  const auto* last = items_.empty() ? nullptr : std::get_if<SkipTensors>(&items_.back());
  if (last == nullptr || last->ranks != ranks) items_.emplace_back(SkipTensors{{}, std::move(ranks)});
  std::get<SkipTensors>(items_.back()).tensors.push_back(std::move(ref));
}

void Leader::release_plan(PlanId id, TimePoint now) {
  Plan& plan = *tables_.plans.find(id);
  const bool reports_done = agreement_.queue().needs_done(plan.set, CollectiveKind::kAllReduce);
  LatestRank latest;
  latest.look_at(plan.since);
  items_.emplace_back(ReleasePlan{id, plan.exceptions(), reports_done, latest.at(now)});
  plan.complete_since = plan.since;
  plan.clear();
}

std::vector<ReadyTime> Leader::ready_times(const std::function<TimePoint(std::uint32_t)>& from) const {
  const auto latest = [](const std::vector<TimePoint>& times) {
    return times.empty() ? TimePoint::min() : *std::max_element(times.begin(), times.end());
  };
  std::vector<ReadyTime> times;
  for (const auto& [name, entry] : tables_.tensors.entries()) {
    const Plan* plan = tables_.plans.find(entry.plan);
    const bool in_plan = plan != nullptr && latest(plan->complete_since) > latest(entry.complete_since);
    const std::vector<TimePoint>& since = in_plan ? plan->complete_since : entry.complete_since;
    const TimePoint last = latest(since);
    if (last >= from(name.set) && last != TimePoint::min()) times.push_back({name.name, since});
  }
  return times;
}

}  // namespace horo
