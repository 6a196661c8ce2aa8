// Bounded reading and writing. A length from the wire is checked against the remaining bytes before memory is
// allocated, so hostile bytes close the peer's connection and have no other effect.
#include "horo/base/wire.h"

#include <algorithm>
#include <bit>

#include "horo/base/check.h"
#include "horo/base/crc32c.h"
#include "horo/base/error.h"

namespace horo {
namespace {

// "horo", and then bytes that a relay that converts text would change.
constexpr std::uint64_t kMagic = 0x0a1a0a0d6f726f68ULL;
constexpr std::uint16_t kVersion = 3;  // 2: flags where a byte was reserved; 3: a handshake of four hellos
constexpr std::uint8_t kCheckedFlag = 1;
constexpr std::size_t kMaxReasonBytes = 4096;

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

// The largest prefix of at most `most` bytes that does not end inside a UTF-8 character.
std::string_view cut(std::string_view text, std::size_t most) {
  if (text.size() <= most) return text;
  std::size_t size = most;
  while (size > 0 && (static_cast<unsigned char>(text[size]) & 0xc0) == 0x80) --size;
  return text.substr(0, size);
}

bool known_kind(std::uint8_t kind) {
  return kind >= static_cast<std::uint8_t>(FrameKind::kHello) && kind <= static_cast<std::uint8_t>(kLastFrameKind);
}

// Expected and received values of fields of the frame header.
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
void ByteWriter::varint(std::uint64_t value) {
  for (; value >= 0x80; value >>= 7) u8(static_cast<std::uint8_t>(value | 0x80));
  u8(static_cast<std::uint8_t>(value));
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

std::uint64_t ByteReader::varint() {
  std::uint64_t value = 0;
  for (unsigned shift = 0; shift < 64; shift += 7) {
    const std::uint8_t byte = u8();
    const bool is_too_long = (byte == 0 && shift > 0) || (shift == 63 && byte > 1);
    if (is_too_long) break;
    value |= std::uint64_t{byte & 0x7fU} << shift;
    if (byte < 0x80) return value;
  }
  throw ProtocolError("a number of more bytes than it needs");
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

// For every message: writes into the header directly.
FrameBytes encode(const Frame& frame) {
  FrameBytes bytes{};
  std::size_t end = 0;
  const auto add = [&](auto value) {
    for (std::size_t i = 0; i < sizeof value; ++i) bytes[end++] = static_cast<std::byte>(value >> (8 * i));
  };
  add(kMagic);
  add(kVersion);
  add(static_cast<std::uint8_t>(frame.kind));
  add(frame.is_checked ? kCheckedFlag : std::uint8_t{0});
  add(frame.job);
  add(frame.epoch);
  add(frame.incarnation);
  add(frame.from);
  add(frame.channel);
  add(frame.plan);
  add(frame.key_hash);
  add(frame.segment);
  add(frame.offset);
  add(frame.length);
  add(crc32c(std::span(bytes).first(end)));
  HORO_CHECK(end == kFrameBytes);
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
  const std::uint8_t flags = in.u8();
  expect_field("unknown flags", flags & ~kCheckedFlag, 0);
  Frame frame;
  frame.is_checked = flags == kCheckedFlag;
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

ChecksumBytes checksum_bytes(std::uint32_t checksum) {
  ChecksumBytes bytes{};
  for (std::size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<std::byte>(checksum >> (8 * i));
  return bytes;
}

std::vector<std::byte> message_of(Frame frame, std::span<const std::byte> payload) {
  frame.length = payload.size();
  const FrameBytes header = encode(frame);
  std::vector<std::byte> message(static_cast<std::size_t>(frame.bytes()));
  const auto end = std::copy(payload.begin(), payload.end(), std::copy(header.begin(), header.end(), message.begin()));
  if (!frame.is_checked) return message;
  const ChecksumBytes tail = checksum_bytes(crc32c(payload, crc32c(header)));
  std::copy(tail.begin(), tail.end(), end);
  return message;
}

void expect_checksum(std::span<const std::byte, kChecksumBytes> theirs, std::uint32_t ours) {
  const auto found = get<std::uint32_t>(theirs);
  if (found == ours) return;
  throw ProtocolError("a payload with checksum " + std::to_string(found) + ", expected " + std::to_string(ours) +
                      ": something on the way changed bytes");
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

std::uint64_t hash64(std::string_view text, std::uint64_t seed) {
  std::uint64_t hash = seed;
  for (const char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3ULL;
  return hash;
}

}  // namespace horo
