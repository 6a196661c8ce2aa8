// The packets of a long message begin with the version and a kind that no message has. All but the last are full.
#include "elastic/packets.h"

#include <algorithm>
#include <string>
#include <utility>

#include "horo/base/error.h"

namespace horo {
namespace {

constexpr std::byte kVersion{kMemberMessageVersion};
constexpr std::byte kPart{100};
constexpr std::byte kLastPart{101};
constexpr std::size_t kHeaderBytes = 2;
constexpr std::size_t kPartBytes = kMaxPacket - kHeaderBytes;

}  // namespace

std::vector<std::vector<std::byte>> packets_of(std::vector<std::byte> message) {
  std::vector<std::vector<std::byte>> packets;
  if (message.size() <= kMaxPacket) {
    packets.push_back(std::move(message));
    return packets;
  }
  for (std::span<const std::byte> left = message; !left.empty();) {
    const auto part = left.first(std::min(left.size(), kPartBytes));
    left = left.subspan(part.size());
    std::vector<std::byte>& packet = packets.emplace_back();
    packet.reserve(kHeaderBytes + part.size());
    packet.push_back(kVersion);
    packet.push_back(left.empty() ? kLastPart : kPart);
    packet.insert(packet.end(), part.begin(), part.end());
  }
  return packets;
}

std::optional<std::vector<std::byte>> PacketJoiner::take(std::span<const std::byte> packet) {
  if (packet.size() > kMaxPacket) {
    throw ProtocolError("a packet of " + std::to_string(packet.size()) + " bytes, at most " +
                        std::to_string(kMaxPacket) + " expected");
  }
  const bool is_part =
      packet.size() > kHeaderBytes && packet[0] == kVersion && (packet[1] == kPart || packet[1] == kLastPart);
  if (!is_part) return std::vector<std::byte>(packet.begin(), packet.end());
  const bool is_last = packet[1] == kLastPart;
  const auto part = packet.subspan(kHeaderBytes);
  const std::size_t bytes = begun_.size() + part.size();
  if (bytes > max_message_) {
    throw ProtocolError("a message of more than " + std::to_string(max_message_) + " bytes");
  }
  if (is_last ? bytes <= kMaxPacket : part.size() < kPartBytes) {
    throw ProtocolError("a part of a message has " + std::to_string(part.size()) + " bytes: too few");
  }
  begun_.insert(begun_.end(), part.begin(), part.end());
  if (!is_last) return std::nullopt;
  return std::exchange(begun_, {});
}

}  // namespace horo
