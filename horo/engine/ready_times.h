// When each rank had each tensor of the last step ready, for people and programs: who holds up whom.
#pragma once

#include <string>
#include <vector>

#include "controller/coordinator.h"

namespace horo {

// {"conv1.weight": [0.0, 1.532, null], ...}: for each rank the milliseconds since the first of all these times, or
// null where it is not known.
std::string ready_times_json(const std::vector<ReadyTime>& times);

}  // namespace horo
