// The first thing that the ranks of a session do together: each tells where it sits and how it is set.
#pragma once

#include <vector>

#include "horo/base/config.h"
#include "horo/base/counters.h"
#include "horo/topology.h"
#include "ring/links.h"
#include "ring/schedule/schedule_time.h"

namespace horo {

struct StartupAgreement {
  Topology topology;
  std::vector<int> hosts;  // by rank, numbered in order of appearance
  MachineCost costs;       // of messages and sums between these ranks, measured if algorithms will be chosen by them
};

// Blocks until all ranks have told, up to Config::start_timeout. Throws std::invalid_argument, with the same words on
// all ranks: a setting that must be equal is not; or PeerLost.
StartupAgreement compare_settings(const Links& links, const Config& config, Counters& counters);

}  // namespace horo
