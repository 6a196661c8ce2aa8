// Packet: what a TUN device with offloads gives and takes: an IP packet, or a train of TCP segments that a real network
// card would cut apart. Fates fall on segments, so trains can be taken apart here. Plain functions, no state.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace horo::tools::relay {

// What was left to the network card: struct virtio_net_hdr of the Linux ABI, whose own header C++ cannot read.
struct Offload {
  static constexpr std::uint8_t kNeedsChecksum = 1;
  static constexpr std::uint8_t kNoTrain = 0, kTrainOfTcp4 = 1;

  std::uint8_t flags = 0;
  std::uint8_t train = kNoTrain;
  std::uint16_t header_bytes = 0;
  std::uint16_t segment_bytes = 0;  // of payload in each
  std::uint16_t checksum_start = 0;
  std::uint16_t checksum_offset = 0;
};
static_assert(sizeof(Offload) == 10);

struct Packet {
  Offload offload;
  std::vector<std::byte> bytes;  // from the IP header on
};

// How many packets it is on a wire; 1 for what is no train.
std::size_t segments_of(const Packet& packet);

// What it occupies of an Ethernet: every segment with its headers, and with the 38 bytes of a frame around it.
std::size_t wire_bytes(const Packet& packet);

// `count` segments from number `first` on, as a train or a packet that the kernel takes for what was sent so.
Packet slice(const Packet& train, std::size_t first, std::size_t count);

// Changes up to 8 neighbouring bytes of a TCP payload, chosen by `chance`, under a checksum that says all is well: the
// receiver's kernel passes it on. False: there is no payload, and nothing was changed.
bool corrupt(Packet& packet, std::uint64_t chance);

}  // namespace horo::tools::relay
