// The control link's peers as they are read: a stream, and what came of a message that is not whole yet.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "ring/transport/handshake.h"
#include "ring/transport/stream.h"

namespace horo {

// What is read of one peer, by the engine thread.
struct ControlInbound {
  std::unique_ptr<Stream> stream;
  int rank = 0;
  std::string name;
  std::uint32_t incarnation = 0;
  std::vector<std::byte> input;
  bool said_goodbye = false;
  bool is_closed = false;
};

// By shared memory where the connection has some.
std::vector<ControlInbound> make_inbound(const Identity& self, std::vector<Connection> connections);
std::vector<Stream*> streams_of(const std::vector<ControlInbound>& peers);

}  // namespace horo
