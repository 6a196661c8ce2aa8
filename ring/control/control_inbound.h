// The receiving side of the control link: a stream for each peer, and the bytes of a message that is not complete yet.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "ring/transport/handshake.h"
#include "ring/transport/stream.h"

namespace horo {

// One peer; used by the engine thread.
struct ControlInbound {
  std::unique_ptr<Stream> stream;
  int rank = 0;
  std::string name;
  std::uint32_t incarnation = 0;
  std::vector<std::byte> input;
  bool has_left = false;  // it has sent a goodbye
  bool is_closed = false;
};

// Streams use shared memory where the connection has it.
std::vector<ControlInbound> make_inbound(const Identity& self, std::vector<Connection> connections);
std::vector<Stream*> streams_of(const std::vector<ControlInbound>& peers);

// Reads what has come, some of it at most, and drops it.
void drain(std::vector<ControlInbound>& peers, std::span<std::byte> buffer) noexcept;
// The peers that are connected have taken all that was sent.
bool is_all_delivered(const std::vector<ControlInbound>& peers) noexcept;

}  // namespace horo
