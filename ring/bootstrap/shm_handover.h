// Between ranks of one host that have met at a Unix socket: one of each pair makes memory for both and hands it over.
#pragma once

#include <optional>
#include <vector>

#include "horo/base/config.h"
#include "horo/base/time.h"
#include "ring/transport/handshake.h"

namespace horo {

// Gives Connection::memory to those of `connections` that go over a Unix socket (the higher rank of a pair makes it),
// and Connection::arena to those for data where that may be. Returns this rank's own arena; none where no peer is near,
// or there is no memory for one (said in the log). Where memory cannot be had, the pair goes on over the socket alone
// if Config::transport is "auto" (said in the log), and with "shm" both throw std::invalid_argument. Blocks until all
// peers have answered; throws PeerLost naming one that ended meanwhile or has not answered at `until`, or as a peer
// says whose start has failed.
std::optional<ShmSegment> share_memory(const Config& config, const Identity& self, std::vector<Connection>& connections,
                                       TimePoint until);

}  // namespace horo
