// The effects of the stream, for the case that an epoch ends at different places of the stream on different ranks.
#include <utility>
#include <variant>

#include "controller/member.h"

namespace horo {

// A skipped tensor is named, because the number may be unknown to a rank that is behind. No name: it is of a round,
// which runs again as a whole, or not known here.
TensorRef Member::with_name(const TensorRef& ref) const {
  if (ref.name || *ref.id >= by_id_.size() || !by_id_[*ref.id].key) return {ref.name, {}};
  const TensorSpec& spec = tensors_.at(*by_id_[*ref.id].key).spec;
  return {spec.round_stream != 0 ? std::nullopt : std::optional(name_of(spec)), {}};
}

// What a released plan skips: its tensors that are absent on all members of the set. Rounds run again as a whole.
SkipTensors Member::skips_of(const ReleasePlan& release) const {
  SkipTensors skips;
  if (release.plan < 1 || release.plan > plans_.size()) return skips;
  const KnownPlan& p = plans_[release.plan - 1];
  const KnownSet* set = sets_.find(p.set);
  for (const SlotAbsence& absence : release.exceptions) {
    if (set == nullptr || absence.slot >= p.keys.size() || absence.ranks.size() < set->ranks.size()) continue;
    const TensorSpec& spec = tensors_.at(p.keys[absence.slot]).spec;
    if (spec.round_stream == 0) skips.tensors.push_back({name_of(spec), {}});
  }
  return skips;
}

// Before the message is applied.
void Member::keep_effects(const DownMessage& message) {
  DownMessage kept;
  for (const DownItem& item : message.items) {
    const bool is_effect = std::holds_alternative<DefineSet>(item) || std::holds_alternative<EndSet>(item) ||
                           std::holds_alternative<JoinOver>(item) || std::holds_alternative<FailTensors>(item);
    if (is_effect) kept.items.push_back(item);
    SkipTensors named;
    if (const auto* release = std::get_if<ReleasePlan>(&item)) named = skips_of(*release);
    if (const auto* skip = std::get_if<SkipTensors>(&item)) {
      named.ranks = skip->ranks;
      for (const TensorRef& ref : skip->tensors) {
        if (TensorRef with = with_name(ref); with.name) named.tensors.push_back(std::move(with));
      }
    }
    if (!named.tensors.empty()) kept.items.emplace_back(std::move(named));
  }
  if (kept.items.empty()) return;
  std::vector<std::byte> encoded = encode(kept);
  effect_bytes_ += encoded.size();
  auto& effects = effects_.effects;
  effects.emplace(applied_, std::move(encoded));
  while (effects.size() > config_.kept_effects || effect_bytes_ > config_.kept_effect_bytes) {
    effect_bytes_ -= effects.begin()->second.size();
    effects_.forgotten = effects.begin()->first;
    effects.erase(effects.begin());
  }
}

StreamEffects Member::effects() const {
  StreamEffects found = effects_;
  found.applied = applied_;
  return found;
}

void Member::catch_up(std::uint64_t number, std::span<const std::byte> effect, Actions& actions) {
  if (number <= applied_) return;
  for (const DownItem& item : decode_down(effect, config_).items) {
    std::visit([&](const auto& one) { apply(one, actions); }, item);
  }
}

}  // namespace horo
