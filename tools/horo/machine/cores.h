// The processors that this process may use, and their division among ranks.
#pragma once

#include <string>
#include <vector>

namespace horo::tools {

// The numbers of the processors in this process's affinity mask, ordered by socket, core and hardware thread.
std::vector<int> allowed_cores();

int usable_cores();  // their number, at least 1

// The usable processors, or the processor time that the control group grants, whichever is less; at least 1.
int granted_cores();

// Divides consecutive cores evenly among ranks; the first shares have one core more if there is a remainder. Expects at
// least one core per rank.
std::vector<std::vector<int>> split_cores(const std::vector<int>& cores, int ranks);

// "0-3,8".
std::string cores_text(const std::vector<int>& cores);

}  // namespace horo::tools
