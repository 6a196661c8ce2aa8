// HeldUnits: the complete tensors of units that are not complete. The tensors of a unit are released together or fail
// together; each becomes complete separately, and is held here until the last tensor of its unit is complete.
#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "controller/ready_table.h"

namespace horo {

class HeldUnits {
 public:
  // Holds a complete entry; spec is its agreed spec, which names the unit. Returns all entries of the unit once
  // spec.unit_size of them are held, and holds none of them any longer; returns an empty list before that.
  std::vector<Entry*> hold(Entry& entry, const TensorSpec& spec);
  // The units of this set that are held.
  std::vector<TensorName> of_set(std::uint32_t set) const;
  void forget(const TensorName& unit) { held_.erase(unit); }
  void forget_set(std::uint32_t set);

 private:
  std::map<TensorName, std::vector<Entry*>> held_;  // by unit; the unit's name is in place of a tensor's
};

}  // namespace horo
