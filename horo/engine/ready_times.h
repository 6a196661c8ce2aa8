// JSON of the times at which each rank had each tensor of the last step ready. It shows which rank delays the others.
#pragma once

#include <string>
#include <vector>

#include "controller/coordinator.h"

namespace horo {

// {"conv1.weight": [0.0, 1.532, null], ...}: for each rank the milliseconds since the first of all these times, or
// null if the time is not known.
std::string ready_times_json(const std::vector<ReadyTime>& times);

}  // namespace horo
