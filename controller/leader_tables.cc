#include "controller/leader_tables.h"

#include "horo/base/error.h"

namespace horo {

LeaderTables::LeaderTables(const CoordinatorConfig& config, SetTable known_sets)
    : size(config.size),
      sets(std::move(known_sets)),
      tensors(config.size, config.max_tensors),
      plans(config.size, config.max_plans),
      joins(config.size),
      rounds(config.size, config.max_round_streams),
      left(config.size) {}

RankSet LeaderTables::needs(const TensorSpec& spec) const {
  if (spec.by_members) return needs_of_members(spec);
  if (spec.kind == CollectiveKind::kRemoveSet) return needs_of_removal(spec);
  const KnownSet& set = *sets.find(spec.set);
  if (spec.kind != CollectiveKind::kSendRecv) return set.members;
  RankSet ends(size);
  for (const int end : {spec.root, spec.peer}) {
    if (end < 0 || static_cast<std::size_t>(end) >= set.ranks.size()) {
      throw ProtocolError("tensor '" + spec.name + "': rank " + std::to_string(end) + " in a process set of " +
                          std::to_string(set.ranks.size()));
    }
    ends.insert(set.ranks[static_cast<std::size_t>(end)]);
  }
  return ends;
}

// The removal of a set that does not exist fails on all ranks.
RankSet LeaderTables::needs_of_removal(const TensorSpec& spec) const {
  const std::int64_t number = spec.shape.front();
  const bool exists = number > 0 && number < sets.next();
  return exists ? sets.ranks_that_know(static_cast<std::uint32_t>(number)) : members(0);
}

RankSet LeaderTables::needs_of_members(const TensorSpec& spec) const {
  if (spec.kind == CollectiveKind::kRemoveSet) {
    const std::int64_t number = spec.shape.front();
    const KnownSet* set = number < 0 || number > UINT32_MAX ? nullptr : sets.find(static_cast<std::uint32_t>(number));
    if (set != nullptr && set->by_members) return set->members;
    throw ProtocolError("the removal of process set " + std::to_string(number) + ", which its members did not add");
  }
  RankSet members(size);
  for (const std::int64_t rank : spec.shape) {
    if (rank < 0 || rank >= size) {
      throw ProtocolError("process set '" + spec.set_name + "' of rank " + std::to_string(rank) + " in a world of " +
                          std::to_string(size));
    }
    members.insert(static_cast<int>(rank));
  }
  return members;
}

std::vector<int> LeaderTables::left_without(const RankSet& needs, const RankSet& ready, std::uint32_t set) const {
  std::vector<int> ranks;
  for (const int rank : left_order) {
    if (needs.contains(rank) && !ready.contains(rank) && !joins.contains(set, rank)) ranks.push_back(rank);
  }
  return ranks;
}

std::vector<int> LeaderTables::missing(const Entry& entry) const {
  const RankSet missing = entry.needs.without(entry.ready);
  const RankSet* joined = joins.ranks(entry.name.set);
  return joined == nullptr ? missing.ranks() : missing.without(*joined).ranks();
}

}  // namespace horo
