// Bounded reading and writing. A length from the wire is compared with what is there before anything is allocated, so
// hostile bytes cost a peer its connection and nothing else.
#include "horo/base/wire.h"

#include <algorithm>
#include <bit>

#include "horo/base/check.h"
#include "horo/base/error.h"

namespace horo {
namespace {

// Spells "horo", and then bytes that a text-minded relay would have changed.
constexpr std::uint64_t kMagic = 0x0a1a0a0d6f726f68ULL;
constexpr std::uint16_t kVersion = 1;
constexpr std::size_t kMaxReasonBytes = 4096;
constexpr std::size_t kChecksumBytes = 4;

template <class Integer>
void put(std::vector<std::byte>& out, Integer value) {
  for (std::size_t i = 0; i < sizeof value; ++i) out.push_back(static_cast<std::byte>(value >> (8 * i)));
}

template <class Integer>
Integer get(std::span<const std::byte> bytes) {
  Integer value = 0;
  for (std::size_t i = 0; i < sizeof value; ++i) {
    value = static_cast<Integer>(value | static_cast<Integer>(std::to_integer<Integer>(bytes[i]) << (8 * i)));
  }
  return value;
}

constexpr std::array<std::uint32_t, 256> make_crc_table() {
  std::array<std::uint32_t, 256> table{};
  for (std::uint32_t i = 0; i < table.size(); ++i) {
    std::uint32_t crc = i;
    for (int bit = 0; bit < 8; ++bit) crc = (crc >> 1) ^ ((crc & 1) != 0 ? 0x82f63b78U : 0U);
    table[i] = crc;
  }
  return table;
}

// The largest prefix of at most `most` bytes that does not end inside a UTF-8 character.
std::string_view cut(std::string_view text, std::size_t most) {
  if (text.size() <= most) return text;
  std::size_t size = most;
  while (size > 0 && (static_cast<unsigned char>(text[size]) & 0xc0) == 0x80) --size;
  return text.substr(0, size);
}

bool known_kind(std::uint8_t kind) {
  return kind >= static_cast<std::uint8_t>(FrameKind::kHello) &&
         kind <= static_cast<std::uint8_t>(FrameKind::kSuspicion);
}

// What was expected, and what came, for fields of the frame header.
void expect_field(const char* field, std::uint64_t found, std::uint64_t expected) {
  if (found == expected) return;
  throw ProtocolError(std::string("frame header: ") + field + " is " + std::to_string(found) + ", expected " +
                      std::to_string(expected));
}

}  // namespace

void ByteWriter::u8(std::uint8_t value) {
  put(bytes_, value);
}
void ByteWriter::u16(std::uint16_t value) {
  put(bytes_, value);
}
void ByteWriter::u32(std::uint32_t value) {
  put(bytes_, value);
}
void ByteWriter::u64(std::uint64_t value) {
  put(bytes_, value);
}
void ByteWriter::f64(double value) {
  put(bytes_, std::bit_cast<std::uint64_t>(value));
}
void ByteWriter::raw(std::span<const std::byte> bytes) {
  bytes_.insert(bytes_.end(), bytes.begin(), bytes.end());
}

void ByteWriter::text(std::string_view text) {
  HORO_CHECK(text.size() <= UINT32_MAX);
  u32(static_cast<std::uint32_t>(text.size()));
  raw(std::as_bytes(std::span(text)));
}

std::uint8_t ByteReader::u8() {
  return get<std::uint8_t>(raw(1));
}
std::uint16_t ByteReader::u16() {
  return get<std::uint16_t>(raw(2));
}
std::uint32_t ByteReader::u32() {
  return get<std::uint32_t>(raw(4));
}
std::uint64_t ByteReader::u64() {
  return get<std::uint64_t>(raw(8));
}
double ByteReader::f64() {
  return std::bit_cast<double>(u64());
}

std::span<const std::byte> ByteReader::raw(std::size_t size) {
  if (size > left_.size()) {
    throw ProtocolError("message too short: " + std::to_string(size) + " bytes expected, " +
                        std::to_string(left_.size()) + " left");
  }
  const auto taken = left_.first(size);
  left_ = left_.subspan(size);
  return taken;
}

std::string ByteReader::text(std::size_t max_bytes) {
  const std::size_t size = u32();
  if (size > max_bytes) {
    throw ProtocolError("text of " + std::to_string(size) + " bytes, at most " + std::to_string(max_bytes) +
                        " expected");
  }
  const auto bytes = raw(size);
  return std::string(reinterpret_cast<const char*>(bytes.data()), bytes.size());
}

std::uint32_t ByteReader::count(std::size_t element_bytes) {
  HORO_CHECK(element_bytes > 0);
  const std::uint32_t count = u32();
  if (count > left_.size() / element_bytes) {
    throw ProtocolError(std::to_string(count) + " elements of at least " + std::to_string(element_bytes) +
                        " bytes announced, but only " + std::to_string(left_.size()) + " bytes follow");
  }
  return count;
}

void ByteReader::expect_end() const {
  if (!left_.empty()) throw ProtocolError(std::to_string(left_.size()) + " bytes too many at the end of a message");
}

FrameBytes encode(const Frame& frame) {
  ByteWriter out;
  out.u64(kMagic);
  out.u16(kVersion);
  out.u8(static_cast<std::uint8_t>(frame.kind));
  out.u8(0);  // reserved
  out.u64(frame.job);
  out.u32(frame.epoch);
  out.u32(frame.incarnation);
  out.u32(frame.from);
  out.u32(frame.channel);
  out.u64(frame.plan);
  out.u64(frame.key_hash);
  out.u32(frame.segment);
  out.u64(frame.offset);
  out.u64(frame.length);
  out.u32(crc32c(out.bytes()));
  HORO_CHECK(out.bytes().size() == kFrameBytes);
  FrameBytes bytes{};
  std::copy(out.bytes().begin(), out.bytes().end(), bytes.begin());
  return bytes;
}

Frame decode_frame(std::span<const std::byte, kFrameBytes> bytes, std::uint64_t max_length) {
  ByteReader in(bytes);
  if (in.u64() != kMagic) throw ProtocolError("frame header: wrong magic; this is no peer of horo");
  expect_field("version", in.u16(), kVersion);
  const auto body = bytes.first<kFrameBytes - kChecksumBytes>();
  expect_field("checksum", get<std::uint32_t>(bytes.last<kChecksumBytes>()), crc32c(body));
  const std::uint8_t kind = in.u8();
  if (!known_kind(kind)) throw ProtocolError("frame header: unknown kind " + std::to_string(kind));
  expect_field("reserved byte", in.u8(), 0);
  Frame frame;
  frame.kind = static_cast<FrameKind>(kind);
  frame.job = in.u64();
  frame.epoch = in.u32();
  frame.incarnation = in.u32();
  frame.from = in.u32();
  frame.channel = in.u32();
  frame.plan = in.u64();
  frame.key_hash = in.u64();
  frame.segment = in.u32();
  frame.offset = in.u64();
  frame.length = in.u64();
  if (frame.length > max_length) {
    throw ProtocolError("frame header: payload of " + std::to_string(frame.length) + " bytes, at most " +
                        std::to_string(max_length) + " expected");
  }
  return frame;
}

std::vector<std::byte> encode(const AbortNotice& notice) {
  ByteWriter out;
  out.u32(static_cast<std::uint32_t>(notice.origin));
  out.text(cut(notice.reason, kMaxReasonBytes));
  return out.take();
}

AbortNotice decode_abort(std::span<const std::byte> bytes) {
  ByteReader in(bytes);
  AbortNotice notice;
  notice.origin = static_cast<std::int32_t>(in.u32());
  if (notice.origin < -1) throw ProtocolError("abort notice: origin is " + std::to_string(notice.origin));
  const auto reason = in.raw(in.u32());
  in.expect_end();
  notice.reason = cut({reinterpret_cast<const char*>(reason.data()), reason.size()}, kMaxReasonBytes);
  return notice;
}

std::uint32_t crc32c(std::span<const std::byte> bytes, std::uint32_t seed) {
  static constexpr auto kTable = make_crc_table();
  std::uint32_t crc = ~seed;
  for (const std::byte b : bytes) crc = kTable[(crc ^ std::to_integer<std::uint32_t>(b)) & 0xff] ^ (crc >> 8);
  return ~crc;
}

std::uint64_t hash64(std::string_view text, std::uint64_t seed) {
  std::uint64_t hash = seed;
  for (const char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3ULL;
  return hash;
}

}  // namespace horo
