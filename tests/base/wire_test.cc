#include "horo/base/wire.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>

#include "horo/base/crc32c.h"
#include "horo/base/error.h"
#include "tests/base/bytes.h"

namespace horo {
namespace {

constexpr std::uint64_t kAnyLength = std::numeric_limits<std::uint64_t>::max();

Frame frame_with_all_fields() {
  return {.kind = FrameKind::kControl,
          .job = 0x0102030405060708,
          .epoch = 1,
          .incarnation = 2,
          .from = 3,
          .channel = 4,
          .plan = 5,
          .key_hash = 0xfedcba9876543210,
          .segment = 6,
          .offset = 1ULL << 40,
          .length = 1ULL << 41};
}

// A header with one byte changed and a valid checksum, as a peer of another version could send.
FrameBytes rewritten(const Frame& frame, std::size_t at, std::byte value) {
  FrameBytes bytes = encode(frame);
  bytes[at] = value;
  const std::uint32_t crc = crc32c(std::span(bytes).first(kFrameBytes - 4));
  for (std::size_t i = 0; i < 4; ++i) bytes[kFrameBytes - 4 + i] = static_cast<std::byte>(crc >> (8 * i));
  return bytes;
}

TEST(Wire, AVarintIsReadAsItWasWrittenAndALongerFormIsRefused) {
  for (const std::uint64_t value : {0ULL, 1ULL, 127ULL, 128ULL, 300ULL, 1ULL << 35, ~0ULL}) {
    ByteWriter out;
    out.varint(value);
    ByteReader in(out.bytes());
    EXPECT_EQ(in.varint(), value);
    in.expect_end();
  }
  ByteWriter longer;
  longer.u8(0x80);
  longer.u8(0);
  EXPECT_THROW(ByteReader(longer.bytes()).varint(), ProtocolError);
  ByteWriter endless;
  for (int i = 0; i < 11; ++i) endless.u8(0xff);
  EXPECT_THROW(ByteReader(endless.bytes()).varint(), ProtocolError);
}

TEST(Wire, Crc32cMatchesRfc3720) {
  std::vector<std::byte> ascending(32), descending(32);
  for (int i = 0; i < 32; ++i) ascending[i] = descending[31 - i] = static_cast<std::byte>(i);
  EXPECT_EQ(crc32c(std::vector<std::byte>(32, std::byte{0x00})), 0x8a9136aaU);
  EXPECT_EQ(crc32c(std::vector<std::byte>(32, std::byte{0xff})), 0x62a8ab43U);
  EXPECT_EQ(crc32c(ascending), 0x46dd794eU);
  EXPECT_EQ(crc32c(descending), 0x113fdb5cU);
  EXPECT_EQ(crc32c(bytes_of("123456789")), 0xe3069283U);
}

TEST(Wire, Crc32cIsTheSameByInstructionAndByTables) {
  std::vector<std::byte> bytes(40'000);
  for (std::size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<std::byte>(i * i >> 3);
  for (const std::size_t size : {0, 1, 7, 8, 9, 383, 384, 385, 391, 12'287, 12'288, 12'671, 12'681, 40'000 - 3}) {
    for (std::size_t begin = 0; begin < 3; ++begin) {
      const auto part = std::span(bytes).subspan(begin, size);
      EXPECT_EQ(crc32c(part, 0x1234), crc32c_by_tables(part, 0x1234)) << size << " bytes from " << begin;
      EXPECT_EQ(crc32c(part.subspan(size / 3), crc32c(part.first(size / 3))), crc32c(part)) << size;
    }
  }
}

TEST(Wire, Crc32cContinuesFromItsSeed) {
  EXPECT_EQ(crc32c(bytes_of("6789"), crc32c(bytes_of("12345"))), 0xe3069283U);
  EXPECT_EQ(crc32c({}), 0U);
}

TEST(Wire, Hash64IsFnv1a) {
  EXPECT_EQ(hash64(""), 0xcbf29ce484222325ULL);
  EXPECT_EQ(hash64("a"), 0xaf63dc4c8601ec8cULL);
  EXPECT_EQ(hash64("foobar"), 0x85944171f73967e8ULL);
  EXPECT_EQ(hash64("bar", hash64("foo")), hash64("foobar"));
}

TEST(Wire, WhatIsWrittenIsReadBack) {
  ByteWriter out;
  out.u8(0xab);
  out.u16(0xabcd);
  out.u32(0xdeadbeef);
  out.u64(0x0123456789abcdef);
  out.f64(-0.0);
  out.text("caf\xc3\xa9");
  out.raw(bytes_of("xyz"));
  ByteReader in(out.bytes());
  EXPECT_EQ(in.u8(), 0xab);
  EXPECT_EQ(in.u16(), 0xabcd);
  EXPECT_EQ(in.u32(), 0xdeadbeefU);
  EXPECT_EQ(in.u64(), 0x0123456789abcdefU);
  EXPECT_TRUE(std::signbit(in.f64()));
  EXPECT_EQ(in.text(5), "caf\xc3\xa9");
  EXPECT_EQ(to_hex(in.raw(3)), to_hex(bytes_of("xyz")));
  in.expect_end();
}

TEST(Wire, IntegersAreLittleEndian) {
  ByteWriter out;
  out.u16(0x0102);
  out.u32(0x03040506);
  EXPECT_EQ(to_hex(out.bytes()), "020106050403");
}

TEST(Wire, NanKeepsItsBits) {
  const double nan = std::bit_cast<double>(0x7ff8000000000123ULL);
  ByteWriter out;
  out.f64(nan);
  EXPECT_EQ(std::bit_cast<std::uint64_t>(ByteReader(out.bytes()).f64()), 0x7ff8000000000123ULL);
}

TEST(Wire, AReaderNeverGoesPastItsEnd) {
  const auto bytes = from_hex("010203");
  EXPECT_THROW(ByteReader(bytes).u32(), ProtocolError);
  EXPECT_THROW(ByteReader(bytes).raw(4), ProtocolError);
  EXPECT_THROW(ByteReader(bytes).raw(std::numeric_limits<std::size_t>::max()), ProtocolError);
  EXPECT_THROW(ByteReader({}).u8(), ProtocolError);
  EXPECT_THROW(ByteReader(bytes).expect_end(), ProtocolError);
  EXPECT_EQ(ByteReader(bytes).raw(3).size(), 3U);
}

TEST(Wire, LengthsAreCheckedBeforeAnythingIsAllocated) {
  const auto huge = from_hex(
      "ffffffff"
      "0102030405060708");
  EXPECT_THROW(ByteReader(huge).text(kAnyLength), ProtocolError);
  EXPECT_THROW(ByteReader(huge).text(16), ProtocolError);
  EXPECT_THROW(ByteReader(huge).count(1), ProtocolError);
  const auto two = from_hex(
      "02000000"
      "0102030405060708");
  EXPECT_EQ(ByteReader(two).count(4), 2U);
  EXPECT_THROW(ByteReader(two).count(5), ProtocolError);
  EXPECT_THROW(ByteReader(two).text(1), ProtocolError);
}

TEST(Wire, AFrameComesBackAsItWas) {
  const Frame frame = frame_with_all_fields();
  EXPECT_EQ(decode_frame(encode(frame), kAnyLength), frame);
  for (const auto kind : {FrameKind::kHello, FrameKind::kData, FrameKind::kAbort, FrameKind::kGoodbye}) {
    EXPECT_EQ(decode_frame(encode(Frame{.kind = kind}), 0).kind, kind);
  }
}

TEST(Wire, TheBytesOfAFrameNeverChange) {
  const FrameBytes bytes = encode(frame_with_all_fields());
  EXPECT_EQ(to_hex(std::span(bytes).first(kFrameBytes - 4)),
            "686f726f0d0a1a0a"
            "0300"
            "03"
            "00"
            "0807060504030201"
            "01000000"
            "02000000"
            "03000000"
            "04000000"
            "0500000000000000"
            "1032547698badcfe"
            "06000000"
            "0000000000010000"
            "0000000000020000");
}

TEST(Wire, AHeaderSaysWhetherAChecksumFollowsThePayload) {
  Frame frame = frame_with_all_fields();
  EXPECT_FALSE(decode_frame(encode(frame), kAnyLength).is_checked);
  frame.is_checked = true;
  EXPECT_EQ(decode_frame(encode(frame), kAnyLength), frame);
}

TEST(Wire, AnotherChecksumIsRefused) {
  EXPECT_NO_THROW(expect_checksum(checksum_bytes(0x12345678), 0x12345678));
  EXPECT_THROW(expect_checksum(checksum_bytes(0x12345678), 0x12345679), ProtocolError);
}

TEST(Wire, EveryFlippedBitOfAHeaderIsFound) {
  const FrameBytes good = encode(frame_with_all_fields());
  for (std::size_t bit = 0; bit < kFrameBytes * 8; ++bit) {
    FrameBytes bad = good;
    bad[bit / 8] ^= static_cast<std::byte>(1 << (bit % 8));
    EXPECT_THROW(decode_frame(bad, kAnyLength), ProtocolError) << "bit " << bit;
  }
}

TEST(Wire, FieldsOutOfRangeAreRefusedEvenWithAFittingChecksum) {
  constexpr auto kBeyond = static_cast<std::byte>(static_cast<std::uint8_t>(kLastFrameKind) + 1);
  const Frame frame = frame_with_all_fields();
  EXPECT_EQ(decode_frame(rewritten(frame, 10, std::byte{1}), kAnyLength).kind, FrameKind::kHello);
  EXPECT_EQ(decode_frame(rewritten(frame, 10, std::byte{9}), kAnyLength).kind, FrameKind::kStripe);
  EXPECT_THROW(decode_frame(rewritten(frame, 0, std::byte{0}), kAnyLength), ProtocolError) << "magic";
  EXPECT_THROW(decode_frame(rewritten(frame, 8, std::byte{1}), kAnyLength), ProtocolError) << "version";
  EXPECT_THROW(decode_frame(rewritten(frame, 10, std::byte{0}), kAnyLength), ProtocolError) << "kind";
  EXPECT_THROW(decode_frame(rewritten(frame, 10, kBeyond), kAnyLength), ProtocolError) << "kind";
  EXPECT_THROW(decode_frame(rewritten(frame, 11, std::byte{2}), kAnyLength), ProtocolError) << "flags";
}

TEST(Wire, ALengthOverTheLimitIsRefused) {
  const Frame frame{.length = 1001};
  EXPECT_EQ(decode_frame(encode(frame), 1001).length, 1001U);
  EXPECT_THROW(decode_frame(encode(frame), 1000), ProtocolError);
}

TEST(Wire, AnAbortNoticeComesBackAsItWas) {
  for (const int origin : {-1, 0, 70'000}) {
    const AbortNotice notice = decode_abort(encode(AbortNotice{origin, "rank 3 of 4: out of memory"}));
    EXPECT_EQ(notice.origin, origin);
    EXPECT_EQ(notice.reason, "rank 3 of 4: out of memory");
  }
}

TEST(Wire, ALongReasonIsCutBetweenTwoCharacters) {
  const std::string reason = std::string(4095, 'x') + "\xc3\xa9 and more";
  EXPECT_EQ(decode_abort(encode(AbortNotice{0, reason})).reason, std::string(4095, 'x'));
  ByteWriter uncut;
  uncut.u32(0);
  uncut.text(reason);
  EXPECT_EQ(decode_abort(uncut.bytes()).reason, std::string(4095, 'x')) << "whatever the sender did";
}

TEST(Wire, ABrokenAbortNoticeIsAProtocolError) {
  EXPECT_THROW(decode_abort({}), ProtocolError);
  EXPECT_THROW(decode_abort(from_hex("00000000"
                                     "05000000"
                                     "41")),
               ProtocolError)
      << "too short";
  EXPECT_THROW(decode_abort(from_hex("00000000"
                                     "00000000"
                                     "41")),
               ProtocolError)
      << "too long";
  EXPECT_THROW(decode_abort(from_hex("00000080"
                                     "00000000")),
               ProtocolError)
      << "origin";
}

}  // namespace
}  // namespace horo
