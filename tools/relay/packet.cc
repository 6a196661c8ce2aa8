// Headers: RFC 791 and RFC 9293. A packet with Offload::kNeedsChecksum has no TCP checksum yet, only the sum of its
// pseudo-header (addresses, protocol, length); the receiving kernel does not verify it.
#include "tools/relay/packet.h"

#include <algorithm>
#include <optional>
#include <span>

#include "horo/base/check.h"

namespace horo::tools::relay {
namespace {

constexpr std::size_t kFrameBytes = 38;  // preamble 8, header 14, checksum 4, gap 12
constexpr std::size_t kLeastIp = 20, kLeastTcp = 20;
constexpr std::size_t kIpLength = 2, kIpId = 4, kIpFragment = 6, kIpProtocol = 9, kIpChecksum = 10, kIpAddresses = 12;
constexpr std::size_t kTcpSequence = 4, kTcpOffset = 12, kTcpFlags = 13, kTcpChecksum = 16;
constexpr unsigned kFin = 0x01, kPush = 0x08, kCongestionReduced = 0x80;
constexpr unsigned kTcp = 6, kFragments = 0x3fff;

using Bytes = std::span<std::byte>;
using ConstBytes = std::span<const std::byte>;

unsigned get8(ConstBytes bytes, std::size_t at) {
  return std::to_integer<unsigned>(bytes[at]);
}

unsigned get16(ConstBytes bytes, std::size_t at) {
  return get8(bytes, at) << 8 | get8(bytes, at + 1);
}

void put16(Bytes bytes, std::size_t at, std::size_t value) {
  bytes[at] = static_cast<std::byte>(value >> 8);
  bytes[at + 1] = static_cast<std::byte>(value);
}

// The ones' complement sum of 16-bit words; an odd last byte is the first half of a word.
unsigned sum_of(ConstBytes bytes, std::size_t start = 0) {
  std::uint64_t sum = start;
  for (std::size_t i = 0; i + 1 < bytes.size(); i += 2) sum += get16(bytes, i);
  if (bytes.size() % 2 == 1) sum += get8(bytes, bytes.size() - 1) << 8;
  while (sum > 0xffff) sum = (sum & 0xffff) + (sum >> 16);
  return static_cast<unsigned>(sum);
}

// The place of a TCP segment in a packet.
struct Segment {
  std::size_t tcp = 0;      // offset of its header
  std::size_t payload = 0;  // offset
  std::size_t size = 0;     // of the payload
};

// Empty: not TCP over IPv4, or a fragment.
std::optional<Segment> segment_in(ConstBytes bytes) {
  if (bytes.size() < kLeastIp + kLeastTcp || get8(bytes, 0) >> 4 != 4) return std::nullopt;
  if (get8(bytes, kIpProtocol) != kTcp || (get16(bytes, kIpFragment) & kFragments) != 0) return std::nullopt;
  Segment segment;
  segment.tcp = (get8(bytes, 0) & 0xf) * 4;
  if (segment.tcp < kLeastIp || segment.tcp + kLeastTcp > bytes.size()) return std::nullopt;
  segment.payload = segment.tcp + (get8(bytes, segment.tcp + kTcpOffset) >> 4) * 4;
  if (segment.payload < segment.tcp + kLeastTcp || segment.payload > bytes.size()) return std::nullopt;
  segment.size = bytes.size() - segment.payload;
  return segment;
}

bool is_train(const Packet& packet) {
  return packet.offload.train != Offload::kNoTrain && packet.offload.segment_bytes > 0;
}

bool needs_checksum(const Packet& packet) {
  return (packet.offload.flags & Offload::kNeedsChecksum) != 0;
}

unsigned pseudo_header_sum(ConstBytes bytes, const Segment& segment) {
  return sum_of(bytes.subspan(kIpAddresses, 8), kTcp + (bytes.size() - segment.tcp));
}

void write_checksums(Packet& packet, const Segment& segment) {
  const Bytes bytes(packet.bytes);
  put16(bytes, kIpChecksum, 0);
  put16(bytes, kIpChecksum, ~sum_of(bytes.first(segment.tcp)) & 0xffff);
  const unsigned pseudo = pseudo_header_sum(bytes, segment);
  put16(bytes, segment.tcp + kTcpChecksum, needs_checksum(packet) ? pseudo : 0);
  if (needs_checksum(packet)) return;
  put16(bytes, segment.tcp + kTcpChecksum, ~sum_of(bytes.subspan(segment.tcp), pseudo) & 0xffff);
}

}  // namespace

std::size_t segments_of(const Packet& packet) {
  if (!is_train(packet)) return 1;
  const std::optional<Segment> segment = segment_in(packet.bytes);
  const std::size_t each = packet.offload.segment_bytes;
  return segment ? std::max<std::size_t>(1, (segment->size + each - 1) / each) : 1;
}

std::size_t wire_bytes(const Packet& packet) {
  const std::size_t segments = segments_of(packet);
  const std::size_t headers = segments > 1 ? segment_in(packet.bytes)->payload : 0;
  return packet.bytes.size() + (segments - 1) * headers + segments * kFrameBytes;
}

Packet slice(const Packet& train, std::size_t first, std::size_t count) {
  const std::size_t all = segments_of(train);
  HORO_CHECK(count > 0 && first + count <= all);
  if (count == all) return train;
  const Segment segment = *segment_in(train.bytes);
  const std::size_t each = train.offload.segment_bytes;
  const std::size_t size = std::min(count * each, segment.size - first * each);
  const auto from = train.bytes.begin() + static_cast<std::ptrdiff_t>(segment.payload + first * each);
  Packet part;
  part.offload = train.offload;
  part.bytes.reserve(segment.payload + size);
  part.bytes.assign(train.bytes.begin(), train.bytes.begin() + static_cast<std::ptrdiff_t>(segment.payload));
  part.bytes.insert(part.bytes.end(), from, from + static_cast<std::ptrdiff_t>(size));
  if (count == 1) {
    part.offload.train = Offload::kNoTrain;
    part.offload.segment_bytes = 0;
  }

  const Bytes bytes(part.bytes);
  put16(bytes, kIpLength, bytes.size());
  put16(bytes, kIpId, get16(bytes, kIpId) + first);
  const std::size_t at = segment.tcp + kTcpSequence;
  const std::size_t sequence = (std::size_t{get16(bytes, at)} << 16 | get16(bytes, at + 2)) + first * each;
  put16(bytes, at, sequence >> 16);
  put16(bytes, at + 2, sequence);
  unsigned flags = get8(bytes, segment.tcp + kTcpFlags);
  if (first + count < all) flags &= ~(kFin | kPush);
  if (first > 0) flags &= ~kCongestionReduced;
  bytes[segment.tcp + kTcpFlags] = static_cast<std::byte>(flags);
  write_checksums(part, segment);
  return part;
}

bool corrupt(Packet& packet, std::uint64_t chance) {
  const std::optional<Segment> segment = segment_in(packet.bytes);
  if (!segment || segment->size == 0) return false;
  const std::size_t begin = segment->payload + chance % segment->size;
  const std::size_t end = std::min(begin + sizeof(chance), packet.bytes.size());
  packet.bytes[begin] ^= static_cast<std::byte>(chance >> 56 | 1);  // always a change
  for (std::size_t i = begin + 1; i < end; ++i) packet.bytes[i] ^= static_cast<std::byte>(chance >> 8 * (i - begin));
  write_checksums(packet, *segment);
  return true;
}

}  // namespace horo::tools::relay
