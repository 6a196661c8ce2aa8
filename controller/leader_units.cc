// Units: tensors that start together or fail together. Each is agreed upon by itself, and then held back until the last
// of its unit is; one that cannot be run takes the others with it, wherever these are.
#include <algorithm>
#include <utility>

#include "controller/leader.h"

namespace horo {

void Leader::hold(Entry& entry, const TensorSpec& spec) {
  const TensorName unit{spec.set, spec.channel, spec.unit};
  std::vector<Entry*>& held = held_[unit];
  held.push_back(&entry);
  if (held.size() < static_cast<std::size_t>(spec.unit_size)) return;
  complete_.insert(complete_.end(), held.begin(), held.end());
  held_.erase(unit);
}

// Every rank that has reported one of a unit has reported all of it, so all of its tensors are in the table.
void Leader::fail_unit(const TensorName& unit, const std::string& culprit, const std::string& text, bool stalled) {
  held_.erase(unit);
  std::map<std::vector<int>, FailTensors> items;  // by who did not submit them
  std::set<TensorName> others;
  for (Entry* entry : table_.of_unit(unit)) {
    std::erase(complete_, Waiting(entry));
    others.merge(ReadyTable::units(*entry));
    FailTensors& item = items[stalled ? missing_of(*entry) : std::vector<int>()];
    item.tensors.push_back({entry->name, ReadyTable::is_once(*entry),
                            "tensor '" + entry->name.name + "'" + of_set(unit.set) + " is one unit ('" + unit.name +
                                "') with tensor '" + culprit + "', which failed: "});
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
