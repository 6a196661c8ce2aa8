// Units: tensors that start together or fail together. Each is agreed upon by itself, and then held back until the last
// of its unit is; one that cannot be run takes the others with it, wherever these are.
#include <algorithm>
#include <utility>

#include "controller/leader.h"

namespace horo {

// Not for ever: what its ranks have made of it may never come together.
void Leader::hold(Entry& entry, const TensorSpec& spec, const StallPatience& patience) {
  const TensorName unit{spec.set, spec.channel, spec.unit};
  std::vector<Entry*>& held = held_[unit];
  held.push_back(&entry);
  entry.held = true;
  entry.waiting = clock_.add(patience, &entry);
  if (held.size() < static_cast<std::size_t>(spec.unit_size)) return;
  std::int32_t priority = spec.priority;
  for (Entry* one : held) priority = std::max(priority, ReadyTable::agreed(*one)->spec.priority);
  for (Entry* one : held) {
    stop_waiting(one->waiting);
    one->held = false;
    let_go(*one, priority);
  }
  held_.erase(unit);
}

std::vector<TensorName> Leader::held_units(std::uint32_t set) const {
  std::vector<TensorName> units;
  for (const auto& [unit, entries] : held_) {
    if (unit.set == set) units.push_back(unit);
  }
  return units;
}

// Every rank that has reported one of a unit has reported all of it, so all of its tensors are in the table. culprit:
// which of them failed; empty: the unit itself did.
void Leader::fail_unit(const TensorName& unit, const std::string& culprit, const std::string& text, bool stalled) {
  held_.erase(unit);
  std::map<std::vector<int>, FailTensors> items;  // by who did not submit them
  std::set<TensorName> others;
  for (Entry* entry : table_.of_unit(unit)) {
    std::erase_if(complete_, [entry](const Complete& one) { return one.what == Waiting(entry); });
    others.merge(ReadyTable::units(*entry));
    FailTensors& item = items[stalled ? missing_of(*entry) : std::vector<int>()];
    const std::string head = "tensor '" + entry->name.name + "'" + of_set(unit.set) + " is ";
    const std::string why = culprit.empty()
                                ? "of unit '" + unit.name + "', which failed: "
                                : "one unit ('" + unit.name + "') with tensor '" + culprit + "', which failed: ";
    item.tensors.push_back({entry->name, ReadyTable::is_once(*entry), head + why});
    if (!entry->ready.covers(entry->needs)) failed_[entry->name] = sent_ + 1;
    finish(*entry);
  }
  for (auto& [missing, item] : items) {
    item.text = text;
    item.missing = missing;
    items_.emplace_back(std::move(item));
  }
  others.erase(unit);
  for (const TensorName& other : others) fail_unit(other, culprit, text, stalled);
}

}  // namespace horo
