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
