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

// The text of a member of an epoch with these members, with the numbers of ranks at the start: each number after "rank"
// or "ranks" is one of the epoch.
std::string at_start(std::string_view text, const std::vector<MemberId>& members);
// What the member with this rank of the epoch says of its own end, without its name: "rank 1: no" is "no", "rank 1
// (host a, rank 2 at the start) ended by an exception" is "host a: an exception".
std::string without_subject(std::string_view text, std::size_t rank);

std::string ranks_text(const std::vector<MemberId>& ranks);     // "rank 3", "ranks 0, 1, 3", "ranks 0 to 20, 22"
std::string duration_text(std::chrono::milliseconds duration);  // "24 ms", "10 s", "1.5 s"

}  // namespace horo
