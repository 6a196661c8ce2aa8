#include <gtest/gtest.h>

#include <numeric>

#include "tests/relay/trains.h"

namespace horo::tools::relay {
namespace {

using testing::kHeaders;
using testing::kSegment;
using testing::train;
using testing::word;

// 0xffff if the internet checksum in the bytes is valid.
unsigned ones_complement_sum(const Packet& packet, std::size_t begin, std::size_t end, unsigned sum = 0) {
  for (std::size_t i = begin; i + 1 < end; i += 2) sum += word(packet, i);
  if ((end - begin) % 2 == 1) sum += std::to_integer<unsigned>(packet.bytes[end - 1]) << 8;
  while (sum > 0xffff) sum = (sum & 0xffff) + (sum >> 16);
  return sum;
}

unsigned tcp_sum(const Packet& packet) {
  const unsigned tcp_bytes = static_cast<unsigned>(packet.bytes.size()) - 20;
  return ones_complement_sum(packet, 20, packet.bytes.size(), ones_complement_sum(packet, 12, 20) + 6 + tcp_bytes);
}

std::vector<std::byte> payload_of(const Packet& packet) {
  return {packet.bytes.begin() + kHeaders, packet.bytes.end()};
}

TEST(RelayPacket, ATrainHasAsManySegmentsAsANetworkCardWouldSend) {
  EXPECT_EQ(segments_of(train(kSegment)), 1u);
  EXPECT_EQ(segments_of(train(kSegment + 1)), 2u);
  EXPECT_EQ(segments_of(train(5 * kSegment)), 5u);
}

TEST(RelayPacket, EverySegmentHasItsHeadersAndFrameOnAWire) {
  EXPECT_EQ(wire_bytes(train(10)), kHeaders + 10 + 38);
  EXPECT_EQ(wire_bytes(train(3 * kSegment)), 3 * (kHeaders + kSegment + 38));
}

TEST(RelayPacket, APacketWithoutTcpIsOneSegmentAndIsNeverCorrupted) {
  Packet packet = train(500);
  packet.bytes[9] = std::byte{17};
  const std::vector<std::byte> before = packet.bytes;
  EXPECT_EQ(segments_of(packet), 1u);
  EXPECT_FALSE(corrupt(packet, 12345));
  EXPECT_EQ(packet.bytes, before);
}

TEST(RelayPacket, SlicesTogetherHaveThePayloadOfTheTrain) {
  const Packet whole = train(4 * kSegment + 7);
  std::vector<std::byte> joined;
  for (const auto& [first, count] : {std::pair(0, 2), std::pair(2, 1), std::pair(3, 2)}) {
    const Packet part = slice(whole, static_cast<std::size_t>(first), static_cast<std::size_t>(count));
    EXPECT_EQ(segments_of(part), static_cast<std::size_t>(count));
    EXPECT_EQ(word(part, 2), part.bytes.size()) << "the length in the IP header";
    const std::vector<std::byte> payload = payload_of(part);
    joined.insert(joined.end(), payload.begin(), payload.end());
  }
  EXPECT_EQ(joined, payload_of(whole));
}

TEST(RelayPacket, ASliceHasItsOwnPlaceInTheStream) {
  const Packet part = slice(train(3 * kSegment), 1, 1);
  EXPECT_EQ(word(part, 24) << 16 | word(part, 26), 500u) << "the sequence number has wrapped";
  EXPECT_EQ(word(part, 4), 0x1235u) << "IP's identification counts packets";
  EXPECT_EQ(part.offload.train, Offload::kNoTrain);
}

TEST(RelayPacket, TheLastSegmentEndsTheStreamAndTheFirstReportsCongestion) {
  const Packet whole = train(3 * kSegment);
  EXPECT_EQ(word(slice(whole, 0, 1), 32) & 0xff, 0x90u) << "CWR and ACK";
  EXPECT_EQ(word(slice(whole, 1, 1), 32) & 0xff, 0x10u) << "ACK";
  EXPECT_EQ(word(slice(whole, 2, 1), 32) & 0xff, 0x19u) << "FIN, PSH and ACK";
}

TEST(RelayPacket, ChecksumsOfASliceAreValid) {
  const Packet part = slice(train(2 * kSegment + 1), 2, 1);
  EXPECT_EQ(ones_complement_sum(part, 0, 20), 0xffffu);
  const unsigned pseudo_header = ones_complement_sum(part, 12, 20) + 6 + 21;
  EXPECT_EQ(word(part, 36), (pseudo_header & 0xffff) + (pseudo_header >> 16)) << "the kernel adds the rest";
}

TEST(RelayPacket, AWholeTrainIsItsOwnSlice) {
  EXPECT_EQ(slice(train(3 * kSegment), 0, 3).bytes, train(3 * kSegment).bytes);
}

TEST(RelayPacket, CorruptionChangesOnlyThePayloadUnderAValidChecksum) {
  for (std::uint64_t chance = 1; chance < 2'000'000'000'000'000'000; chance *= 3) {
    Packet packet = train(77);
    packet.offload.flags = 0;  // a packet with a checksum
    const Packet before = packet;
    ASSERT_TRUE(corrupt(packet, chance));
    EXPECT_NE(payload_of(packet), payload_of(before)) << chance;
    EXPECT_TRUE(std::equal(packet.bytes.begin() + 12, packet.bytes.begin() + 36, before.bytes.begin() + 12)) << chance;
    EXPECT_EQ(tcp_sum(packet), 0xffffu) << chance;
    EXPECT_EQ(ones_complement_sum(packet, 0, 20), 0xffffu) << chance;
  }
}

TEST(RelayPacket, AnAcknowledgementHasNothingToCorrupt) {
  Packet packet = train(0);
  EXPECT_FALSE(corrupt(packet, 1));
}

TEST(RelayPacket, InvalidHeadersAreNotTcp) {
  Packet packet = train(3 * kSegment);
  packet.bytes[0] = std::byte{0x4f};  // an IP header of 60 bytes: TCP's header would begin in the payload
  packet.bytes.resize(61);
  EXPECT_EQ(segments_of(packet), 1u);
  EXPECT_FALSE(corrupt(packet, 1));
}

}  // namespace
}  // namespace horo::tools::relay
