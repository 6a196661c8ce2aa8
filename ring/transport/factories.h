// The transport and the control link over authenticated connections, which ring/bootstrap makes.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "horo/base/config.h"
#include "ring/control_link.h"
#include "ring/os/process.h"
#include "ring/shm/arena.h"
#include "ring/transport.h"
#include "ring/transport/handshake.h"

namespace horo {

// `connections`: to every other rank. `arenas`: memory shared with ranks of this host, by which their deaths
// show; null: none.
std::unique_ptr<Transport> make_stream_transport(const Config& config, const Identity& self,
                                                 std::vector<Connection> connections,
                                                 std::shared_ptr<ShmArenas> arenas = {});

// `connections`: one to every other rank on rank 0, else one to rank 0. `watched`: processes whose end it reports.
std::unique_ptr<ControlLink> make_stream_control(const Config& config, const Identity& self,
                                                 std::vector<Connection> connections,
                                                 std::vector<Watched> watched = {});

}  // namespace horo
