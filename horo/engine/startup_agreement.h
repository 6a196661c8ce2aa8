// StartupAgreement: the first exchange of the ranks of a session. Each rank sends its position and its settings.
#pragma once

#include <string>
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
  MachineCost costs;       // of messages and sums between these ranks; measured if algorithms will be chosen by them
};

// Blocks until all ranks have sent, up to Config::start_timeout. Throws std::invalid_argument, with the same text on
// all ranks, if a setting differs that must be equal; or PeerLost.
StartupAgreement compare_settings(const Links& links, const Config& config, Counters& counters);

// What it compares, and the version of horo: lines "name=value".
std::string terms_of(const Config& config);

}  // namespace horo
