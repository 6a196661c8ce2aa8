#include "elastic/missing_effects.h"

#include <algorithm>
#include <utility>

namespace horo {

std::optional<Effects> missing_effects(const std::vector<const Frozen*>& members) {
  std::uint64_t all_applied = UINT64_MAX;
  for (const Frozen* frozen : members) all_applied = std::min(all_applied, frozen->applied);
  Effects effects;
  for (const Frozen* frozen : members) {
    if (frozen->forgotten > all_applied) return std::nullopt;
    for (auto effect = frozen->effects.upper_bound(all_applied); effect != frozen->effects.end(); ++effect) {
      std::vector<std::byte>& kept = effects[effect->first];  // outside of a set, less is known of what happened in it
      if (effect->second.size() > kept.size()) kept = effect->second;
    }
  }
  std::size_t bytes = 0;
  for (const auto& [number, effect] : effects) bytes += effect.size();
  return effects.size() <= kMaxEffects && bytes <= kMaxEffectBytes ? std::optional(std::move(effects)) : std::nullopt;
}

}  // namespace horo
