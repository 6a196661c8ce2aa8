// Which rank the others have waited for, and in which bar it is slower than they are.
#pragma once

#include <optional>
#include <vector>

#include "tools/horo/scale/scale_table.h"

namespace horo::tools {

// None if skew is less than 2 % of the step. `sums` and `means` are of the same ranks in one order.
std::optional<LateOne> late_one_of(const std::vector<RankSums>& sums, const std::vector<RankStep>& means);

}  // namespace horo::tools
