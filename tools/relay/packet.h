// Packet: the unit of a TUN device with offloads: an IP packet, or a train of TCP segments that a network card would
// split. A link decides per segment, so trains can be split here. Plain functions, no state.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace horo::tools::relay {

// The work left to the network card: struct virtio_net_hdr of the Linux ABI, whose header is not valid C++.
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

// The number of packets on a wire; 1 if it is not a train.
std::size_t segments_of(const Packet& packet);

// The bytes on an Ethernet: every segment with its headers and the 38 bytes of a frame.
std::size_t wire_bytes(const Packet& packet);

// `count` segments from number `first` on, as a train or packet that is valid for the kernel.
Packet slice(const Packet& train, std::size_t first, std::size_t count);

// Changes up to 8 adjacent bytes of a TCP payload, selected by `chance`, and makes the checksum valid, so that the
// receiver's kernel delivers the data. Returns false and changes nothing if there is no payload.
bool corrupt(Packet& packet, std::uint64_t chance);

}  // namespace horo::tools::relay
