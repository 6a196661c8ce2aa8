// The table of costs in docs/collectives.md, computed from the schedules.
#pragma once

#include <string>

namespace horo::proof {

// A Markdown table.
std::string cost_table();

}  // namespace horo::proof
