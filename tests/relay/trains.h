// Packets for tests: TCP over IPv4 as the kernel passes it to a TUN device.
#pragma once

#include "tools/relay/packet.h"

namespace horo::tools::relay::testing {

inline constexpr std::size_t kHeaders = 40, kSegment = 1000;

inline void put(Packet& packet, std::size_t at, std::initializer_list<unsigned> bytes) {
  for (const unsigned byte : bytes) packet.bytes[at++] = static_cast<std::byte>(byte);
}

inline unsigned word(const Packet& packet, std::size_t at) {
  return std::to_integer<unsigned>(packet.bytes[at]) << 8 | std::to_integer<unsigned>(packet.bytes[at + 1]);
}

// A train with this many bytes of payload; each byte is its offset modulo 251. Sequence numbers begin at 2^32 - 500;
// FIN, PSH and CWR are set.
inline Packet train(std::size_t payload) {
  Packet packet;
  packet.bytes.resize(kHeaders + payload);
  for (std::size_t i = 0; i < payload; ++i) packet.bytes[kHeaders + i] = static_cast<std::byte>(i % 251);
  put(packet, 0,
      {0x45, 0, static_cast<unsigned>(packet.bytes.size() >> 8), static_cast<unsigned>(packet.bytes.size())});
  put(packet, 4, {0x12, 0x34, 0x40, 0, 64, 6, 0, 0, 10, 77, 0, 1, 10, 77, 0, 2});
  put(packet, 20, {1, 2, 3, 4, 0xff, 0xff, 0xfe, 0x0c, 0, 0, 0, 1, 0x50, 0x99});
  packet.offload.flags = Offload::kNeedsChecksum;
  packet.offload.checksum_start = 20;
  packet.offload.checksum_offset = 16;
  if (payload > kSegment) {
    packet.offload.train = Offload::kTrainOfTcp4;
    packet.offload.segment_bytes = kSegment;
  }
  return packet;
}

}  // namespace horo::tools::relay::testing
