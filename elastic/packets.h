// Packets: the socket between a member and the guard limits the size of a packet, so a longer message travels in
// several.
#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <vector>

#include "elastic/messages.h"

namespace horo {

inline constexpr std::size_t kMaxPacket = 128 << 10;  // bytes

// The packets of an encoded message, in order: the message itself, if it fits into one.
std::vector<std::vector<std::byte>> packets_of(std::vector<std::byte> message);

// Joins the packets of one socket. A message of one packet may come between those of another one.
class PacketJoiner {
 public:
  explicit PacketJoiner(std::size_t max_message = kMaxMemberMessage) : max_message_(max_message) {}

  // The message that ends with this packet; nothing: more packets follow. Throws ProtocolError for packets that
  // packets_of() does not make.
  std::optional<std::vector<std::byte>> take(std::span<const std::byte> packet);

 private:
  const std::size_t max_message_;
  std::vector<std::byte> begun_;
};

}  // namespace horo
