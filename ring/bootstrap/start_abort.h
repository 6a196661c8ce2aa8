// Abort notices between ranks that are still connecting. A rank that gives up sends the reason, so that every rank
// names the rank that failed first, and not one that only gave up.
#pragma once

#include <cstddef>
#include <optional>
#include <vector>

#include "ring/transport/handshake.h"

namespace horo {

// The frame that carries the notice.
std::vector<std::byte> abort_message(const Identity& self, const AbortNotice& notice);

// Sends the notice if the connection takes the bytes without blocking; else the notice is dropped.
void send_abort(const Connection& connection, const Identity& self, const AbortNotice& notice);

// The abort notice among the frames that lie unread at a socket, if there is one. The frames stay unread.
std::optional<AbortNotice> peek_abort(int fd);

}  // namespace horo
