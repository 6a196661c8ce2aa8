// Which processors this process may use, and how ranks share them.
#pragma once

#include <string>
#include <vector>

namespace horo::tools {

// Numbers of the processors in this process's affinity mask; the threads of one core stand side by side, then the cores
// of one socket.
std::vector<int> allowed_cores();

int usable_cores();  // how many these are, 1 at least

// Processors to count on: the usable ones, or fewer where a control group grants less time; 1 at least.
int granted_cores();

// Even shares of neighbours, the first ones one larger where it does not come out even. Expects enough cores for all.
std::vector<std::vector<int>> split_cores(const std::vector<int>& cores, int ranks);

// "0-3,8".
std::string say_cores(const std::vector<int>& cores);

}  // namespace horo::tools
