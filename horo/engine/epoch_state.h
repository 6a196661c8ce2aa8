// EpochState: everything that belongs to one membership of the world.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <vector>

#include "controller/coordinator.h"
#include "horo/base/config.h"
#include "horo/engine/failure_detector.h"
#include "horo/engine/pending_items.h"
#include "horo/lane/lane_set.h"
#include "horo/tensors/join_state.h"
#include "ring/links.h"

namespace horo {

// The ranks of an epoch.
struct Membership {
  std::uint32_t epoch = 0;
  std::vector<std::uint32_t> members;  // MemberIds (elastic/messages.h), by rank: the ranks of the first epoch
  int rank = 0;                        // of this process
  int size() const { return static_cast<int>(members.size()); }
  // By rank of this epoch, the rank in `later`; -1: lost.
  std::vector<int> ranks_in(const Membership& later) const;
};
Membership first_membership(const Config& config);

// How long a rank that leaves an epoch waits until its peers have read everything.
inline constexpr std::chrono::milliseconds kGoodbyePatience{1'000};

// In order of construction. The engine's thread only, except for LaneSet's functions for any thread.
struct EpochState {
  // config: with the ranks of this epoch.
  EpochState(const Membership& membership, const Config& config, Links links);
  // The first epoch of a rank that joins a running job, whose process sets these are.
  EpochState(const Membership& membership, const Config& config, Links links, const JoinState& joined);
  // The epoch with this number after `before`, which has ended.
  EpochState(const Membership& membership, const Config& config, Links links, const EpochState& before);
  // Takes the buffers of the lanes of `before`, which have ended, if both epochs use the same arena.
  void take_memory(EpochState& before);

  const Membership membership;
  const Config config;
  Links links;
  Coordinator coordinator;
  FailureDetector detector;
  PendingItems pending;            // items whose events the coordinator has received
  std::unique_ptr<LaneSet> lanes;  // made after the startup agreement
};

}  // namespace horo
