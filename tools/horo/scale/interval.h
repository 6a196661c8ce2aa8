// The interval of an efficiency, by resampling rounds and, within each, blocks of consecutive steps.
#pragma once

#include <cstdint>
#include <vector>

#include "tools/horo/scale/run_data.h"

namespace horo::tools {

// Blocks of one round with the base's number of ranks and with another. Work is in `samples`.
struct RoundBlocks {
  std::vector<StepBlock> base, size;
};

struct PpmInterval {
  std::int64_t low = 0, high = 0;
};

// The middle 95 % of 1,000 resamplings, in parts per million; the same for the same rounds. At least one round, each
// with a block on both sides.
PpmInterval efficiency_interval(const std::vector<RoundBlocks>& rounds);

}  // namespace horo::tools
