#include "controller/held_units.h"

namespace horo {

std::vector<Entry*> HeldUnits::hold(Entry& entry, const TensorSpec& spec) {
  const TensorName unit{spec.set, spec.channel, spec.unit};
  std::vector<Entry*>& held = held_[unit];
  held.push_back(&entry);
  entry.held = true;
  if (held.size() < static_cast<std::size_t>(spec.unit_size)) return {};
  std::vector<Entry*> all = std::move(held);
  held_.erase(unit);
  for (Entry* one : all) one->held = false;
  return all;
}

std::vector<TensorName> HeldUnits::of_set(std::uint32_t set) const {
  std::vector<TensorName> units;
  for (const auto& [unit, entries] : held_) {
    if (unit.set == set) units.push_back(unit);
  }
  return units;
}

void HeldUnits::forget_set(std::uint32_t set) {
  std::erase_if(held_, [set](const auto& unit) { return unit.first.set == set; });
}

}  // namespace horo
