// The first thing that the ranks of a session do together: each tells where it sits and how it is set.
#pragma once

#include "horo/base/config.h"
#include "horo/base/counters.h"
#include "horo/session.h"
#include "ring/transport.h"

namespace horo {

// Blocks until all ranks have told, up to Config::start_timeout. Throws std::invalid_argument, with the same words on
// all ranks: a setting that must be equal is not; or PeerLost.
Topology compare_settings(Transport& transport, const Config& config, Counters& counters);

}  // namespace horo
