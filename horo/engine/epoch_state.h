// EpochState: everything that belongs to one membership of the world.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>

#include "controller/coordinator.h"
#include "horo/base/config.h"
#include "horo/engine/failure_detector.h"
#include "horo/engine/pending_items.h"
#include "horo/lane/lane_set.h"
#include "ring/links.h"

namespace horo {

// How long a rank that leaves an epoch waits until its peers have read everything.
inline constexpr std::chrono::milliseconds kGoodbyePatience{1'000};

// In order of construction. The engine's thread only, except for LaneSet's functions for any thread.
struct EpochState {
  EpochState(const Config& config, Links links);
  // The epoch after `before`, which has ended by a rebuild.
  EpochState(const Config& config, Links links, const EpochState& before);
  const std::uint32_t number = 0;
  Links links;
  Coordinator coordinator;
  FailureDetector detector;
  PendingItems pending;            // items whose events the coordinator has received
  std::unique_ptr<LaneSet> lanes;  // made after the startup agreement
};

}  // namespace horo
