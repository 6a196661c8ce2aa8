// Handover of shared memory between ranks of one host that are connected by a Unix socket: one rank of each pair
// creates a segment for both and passes its descriptor.
#pragma once

#include <memory>
#include <vector>

#include "horo/base/config.h"
#include "horo/base/time.h"
#include "ring/shm/arena.h"
#include "ring/transport/handshake.h"

namespace horo {

// Sets Connection::memory of those `connections` that are Unix sockets (the higher rank of a pair creates the segment),
// and Connection::arena of those for data. Returns this rank's own arena; null if no peer is on this host or the arena
// cannot be created (logged). `before`: arenas of an earlier epoch, which are used again; null: the arena is new. Where
// a segment cannot be created or mapped, the pair uses the socket alone if Config::transport is "auto" (logged); with
// "shm" both ranks throw std::invalid_argument. Blocks until all peers have answered. Throws PeerLost, naming a peer
// that ended meanwhile or has not answered by `deadline`, or the rank that a peer's abort notice names.
std::shared_ptr<Arena> share_memory(const Config& config, const Identity& self, std::vector<Connection>& connections,
                                    TimePoint deadline, const ShmArenas* before = nullptr);

}  // namespace horo
