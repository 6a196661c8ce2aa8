// Texts of the elastic job's story: lines for a person at a terminal.
#pragma once

#include <chrono>
#include <string>
#include <string_view>
#include <vector>

#include "elastic/messages.h"

namespace horo {

// The text of a member as a terminal may show it: control characters and bytes that are no UTF-8 as \xNN, and cut after
// about 400 bytes.
std::string printable(std::string_view text);

std::string ranks_text(const std::vector<MemberId>& ranks);     // "rank 3", "ranks 0, 1, 3", "ranks 0 to 20, 22"
std::string duration_text(std::chrono::milliseconds duration);  // "24 ms", "10 s", "1.5 s"

}  // namespace horo
