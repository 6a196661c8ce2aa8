// What each algorithm costs, as docs/collectives.md has it: made of the schedules themselves.
#pragma once

#include <string>

namespace horo::proof {

// Lines of a Markdown table.
std::string cost_table();

}  // namespace horo::proof
