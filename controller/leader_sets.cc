// Process sets and joins of the leader. A set begins and ends at one place in the stream, so that its number means the
// same set on every rank. No tensor waits for a rank that has joined its set.
#include <algorithm>
#include <utility>

#include "controller/leader.h"
#include "controller/texts.h"

namespace horo {

void Leader::define_set(Entry& entry) {
  Version& version = *ReadyTable::agreed(entry);
  std::vector<int> ranks;
  for (const std::int64_t rank : version.spec.shape) ranks.push_back(static_cast<int>(rank));
  if (ranks.front() < 0 || version.spec.shape.back() >= config_.size) {
    return agreement_.fail(
        entry, "a process set " + ranks_text(ranks) + ": the world has ranks 0 to " + std::to_string(config_.size - 1));
  }
  const std::string refusal = refusal_of_set(version.spec, ranks);
  if (!refusal.empty()) return agreement_.fail(entry, refusal);
  const TensorSpec& spec = version.spec;
  SetTable& sets = tables_.sets;
  items_.emplace_back(DefineSet{tables_.tensors.refer(entry, version), sets.next(), spec.set_name, ranks, spec.shrinks,
                                spec.by_members});
  sets.add(spec.set_name, std::move(ranks), spec.shrinks, spec.by_members);
  agreement_.finish(entry);
}

// Sets that all ranks add have different ranks, sets that their members add have different names. Each rank has checked
// the former at the call, as far as it knew the sets.
std::string Leader::refusal_of_set(const TensorSpec& spec, const std::vector<int>& ranks) const {
  const SetTable& sets = tables_.sets;
  const std::optional<std::uint32_t> known = spec.by_members ? sets.find_of_members(spec.set_name) : sets.find(ranks);
  if (known) {
    const std::string what = spec.by_members ? "that name" : ranks_text(ranks);
    return "a process set of " + what + " exists already: " + set_text(*known, sets.find(*known)->name) +
           ". Use that one, or remove it first";
  }
  if (sets.all().size() <= config_.max_sets) return "";
  return "process set '" + spec.set_name + "' of " + ranks_text(ranks) + ": " + std::to_string(config_.max_sets) +
         " process sets exist, no more are allowed (HORO_MAX_PROCESS_SETS)";
}

void Leader::end_set(Entry& entry) {
  Version& version = *ReadyTable::agreed(entry);
  const std::int64_t number = version.spec.shape.front();
  const auto set = static_cast<std::uint32_t>(number);
  if (number < 1 || number >= tables_.sets.next() || tables_.sets.find(set) == nullptr) {
    return agreement_.fail(entry,
                           "process set " + std::to_string(number) +
                               (number == 0 ? " is the world, which cannot be removed" : " does not exist (any more)"));
  }
  TensorRef ref = tables_.tensors.refer(entry, version);
  agreement_.finish(entry);
  agreement_.forget_set(set);
  items_.emplace_back(EndSet{std::move(ref), set});
  tables_.joins.clear(set);
  tables_.sets.remove(set);
  progress_.set_removed(set);
}

void Leader::take_join(int from, const TensorSpec& spec, TimePoint now) {
  if (is_stale(from, spec.set)) return;
  check_member(from, spec.set, spec.name);
  const std::vector<int>& ranks = tables_.sets.find(spec.set)->ranks;
  const auto rank_in_set = std::lower_bound(ranks.begin(), ranks.end(), from) - ranks.begin();
  tables_.joins.add(spec.set, from, static_cast<int>(rank_in_set), now);
  agreement_.rank_joined(spec.set, now);
  fail_lost_join(spec.set);
}

// A join waits for all members. It fails if a member left without joining.
void Leader::fail_lost_join(std::uint32_t set) {
  const RankSet* joined = tables_.joins.ranks(set);
  if (joined == nullptr) return;
  const std::vector<int> left = tables_.left_without(tables_.members(set), *joined, set);
  if (left.empty()) return;
  items_.emplace_back(JoinOver{set, 0, lost_join_text(left, tables_.of_set(set))});
  tables_.joins.clear(set);
}

// The release of the rebuild is the last item of the stream. What is not released by then is reported again in the
// next epoch.
void Leader::end_epoch(Entry& entry, TimePoint now) {
  if (is_over_) return;
  if (const RankSet* joined = tables_.joins.ranks(0); joined != nullptr && !joined->empty()) {
    return agreement_.fail(entry, ranks_text(joined->ranks()) + " joined the world before the epoch could end");
  }
  release_bucket({&entry}, {}, now);
  is_over_ = true;
}

// Ends the joins of the sets that all members have joined. No report of such a set is in flight, so a unit that is
// incomplete now stays incomplete.
void Leader::end_joins() {
  std::vector<std::uint32_t> all_joined;
  for (const auto& [set, join] : tables_.joins.all()) {
    if (join.ranks.covers(tables_.members(set))) all_joined.push_back(set);
  }
  for (const std::uint32_t set : all_joined) {
    for (const TensorName& unit : agreement_.units().of_set(set)) {
      agreement_.fail_unit(unit, {"", joined_unit_text()}, false);
    }
    items_.emplace_back(JoinOver{set, tables_.joins.all().at(set).last, ""});
    tables_.joins.clear(set);
    tables_.rounds.forget_set(set);  // the members count steps anew; none has begun a round since it joined
  }
}

}  // namespace horo
