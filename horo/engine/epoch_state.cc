#include "horo/engine/epoch_state.h"

#include <algorithm>
#include <utility>

#include "controller/set_table.h"
#include "elastic/messages.h"
#include "ring/shm/arena.h"

namespace horo {
namespace {

CoordinatorConfig coordinator_config(const Config& config) {
  CoordinatorConfig c;
  c.rank = config.rank;
  c.size = config.size;
  c.bucket_bytes = config.bucket_bytes;
  // If all ranks share a host, reducing small first buckets early would take cores from the computation.
  c.least_bucket_bytes = config.local_size == config.size ? config.bucket_bytes : config.least_bucket_bytes;
  c.credit_bytes = config.credit_bytes;
  c.stall_warning = config.stall_warning;
  c.stall_limit = config.stall_limit;
  c.deadlock_limit = config.deadlock_limit;
  c.answer_timeout = config.answer_timeout;
  c.max_name_bytes = config.max_name_bytes;
  c.max_dims = config.max_dims;
  c.max_tensors = config.max_tensors;
  c.max_round_streams = config.max_round_streams;
  c.max_sets = config.max_process_sets;
  c.kept_tensors = config.kept_tensors;
  c.elastic = config.min_np > 0;
  c.has_one_clock = config.local_size == config.size;
  c.kept_effects = kMaxEffects;
  c.kept_effect_bytes = kMaxEffectBytes;
  return c;
}

// Names that horo gives are not names of callers.
SetTable sets_in(const JoinState& state, const Membership& membership) {
  std::map<std::uint32_t, KnownSet> sets;
  for (const auto& [number, set] : state.sets) {
    std::vector<int> ranks = ranks_of(set, membership.members);
    if (ranks.empty()) continue;
    RankSet members(membership.size(), ranks);
    const std::string name = set.name == set_text(number, "") ? "" : set.name;
    sets.emplace(number, KnownSet{name, std::move(ranks), std::move(members), set.shrinks, set.by_members});
  }
  return {first_sets_of(state, membership.members), state.last_set + 1, sets};
}

}  // namespace

std::vector<int> Membership::ranks_in(const Membership& later) const {
  std::vector<int> ranks;
  for (const std::uint32_t id : members) {
    const auto found = std::find(later.members.begin(), later.members.end(), id);
    ranks.push_back(found == later.members.end() ? -1 : static_cast<int>(found - later.members.begin()));
  }
  return ranks;
}

Membership first_membership(const Config& config) {
  Membership first{0, {}, config.rank};
  for (int rank = 0; rank < config.size; ++rank) first.members.push_back(static_cast<std::uint32_t>(rank));
  return first;
}

EpochState::EpochState(const Membership& first, const Config& settings, Links found)
    : membership(first),
      config(settings),
      links(std::move(found)),
      coordinator(coordinator_config(config)),
      detector(config, links.names) {}

EpochState::EpochState(const Membership& first, const Config& settings, Links found, const JoinState& joined)
    : membership(first),
      config(settings),
      links(std::move(found)),
      coordinator(coordinator_config(config), sets_in(joined, membership)),
      detector(config, links.names) {}

EpochState::EpochState(const Membership& next, const Config& settings, Links found, const EpochState& before)
    : membership(next),
      config(settings),
      links(std::move(found)),
      coordinator(coordinator_config(config), before.coordinator, before.membership.ranks_in(next)),
      detector(config, links.names) {}

void EpochState::take_memory(EpochState& before) {
  const auto& own = links.arenas;
  if (own && before.links.arenas && own->own() == before.links.arenas->own()) lanes->take_memory(*before.lanes);
}

}  // namespace horo
