// Bytes on a wire: a bounded writer and reader, and the frame header that opens every message between ranks. Integers
// are little-endian. Input is not trusted: a reader that runs out of bytes, or a field out of range, is a
// ProtocolError.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace horo {

class ByteWriter {
 public:
  void u8(std::uint8_t value);
  void u16(std::uint16_t value);
  void u32(std::uint32_t value);
  void u64(std::uint64_t value);
  void f64(double value);
  void varint(std::uint64_t value);  // seven bits a byte, the lowest first
  void raw(std::span<const std::byte> bytes);
  void text(std::string_view text);  // u32 length, then the bytes
  const std::vector<std::byte>& bytes() const { return bytes_; }
  std::vector<std::byte> take() { return std::move(bytes_); }

 private:
  std::vector<std::byte> bytes_;
};

class ByteReader {
 public:
  explicit ByteReader(std::span<const std::byte> bytes) : left_(bytes) {}
  std::uint8_t u8();
  std::uint16_t u16();
  std::uint32_t u32();
  std::uint64_t u64();
  double f64();
  std::uint64_t varint();  // refused if it is longer than needed
  std::span<const std::byte> raw(std::size_t size);
  std::string text(std::size_t max_bytes);
  // The number of elements of at least `element_bytes` each that follow; refused if they exceed the remaining bytes.
  std::uint32_t count(std::size_t element_bytes);
  std::size_t left() const { return left_.size(); }
  void expect_end() const;

 private:
  std::span<const std::byte> left_;
};

enum class FrameKind : std::uint8_t {
  kHello = 1,
  kData = 2,
  kControl = 3,
  kAbort = 4,
  kGoodbye = 5,
  kBeat = 6,
  kSuspicion = 7,
  kStriped = 8,  // as kData: the first piece of a striped message; `offset` is the length of the message
  kStripe = 9    // a later piece, at `offset`; `key_hash` is the message's number among those of kStriped
};
inline constexpr auto kLastFrameKind = FrameKind::kStripe;

// The payload of an abort frame: the rank that was lost or gave up first, and the reason. A suspicion has the same
// payload, and the Evidence in its segment. A beat has no payload; segment 1 requests an answer.
struct AbortNotice {
  int origin = -1;
  std::string reason;
};

inline constexpr std::size_t kFrameBytes = 76;
inline constexpr std::size_t kChecksumBytes = 4;

// One message: this header, then `length` bytes. Field order on the wire is the order here.
struct Frame {
  FrameKind kind = FrameKind::kData;
  std::uint64_t job = 0;  // hash of the job's name and key
  std::uint32_t epoch = 0;
  std::uint32_t incarnation = 0;  // start of the sender
  std::uint32_t from = 0;         // sender's rank in the world
  std::uint32_t channel = 0;
  std::uint64_t plan = 0;
  std::uint64_t key_hash = 0;  // of the names in the plan: detects two ranks with different tensors
  std::uint32_t segment = 0;   // of the plan; a receive is posted for (channel, plan, segment)
  std::uint64_t offset = 0;    // of the payload in its buffer, in bytes
  std::uint64_t length = 0;    // of the payload, in bytes
  bool is_checked = false;     // the payload's checksum, of kChecksumBytes, follows it
  bool operator==(const Frame&) const = default;
  std::uint64_t bytes() const { return kFrameBytes + length + (is_checked ? kChecksumBytes : 0); }  // of the message
};

using FrameBytes = std::array<std::byte, kFrameBytes>;

// Encodes the header with magic and version; the last kChecksumBytes are a CRC32C of the header itself.
FrameBytes encode(const Frame& frame);

// Throws ProtocolError on a wrong magic, version, kind, flag or checksum, or a length over `max_length`.
Frame decode_frame(std::span<const std::byte, kFrameBytes> bytes, std::uint64_t max_length);

// The bytes behind a checked payload: the CRC32C of header and payload.
using ChecksumBytes = std::array<std::byte, kChecksumBytes>;
ChecksumBytes checksum_bytes(std::uint32_t checksum);
// The complete message: the frame with this payload's length, the payload, and its checksum if the frame has one.
std::vector<std::byte> message_of(Frame frame, std::span<const std::byte> payload);
// Throws ProtocolError unless they are equal.
void expect_checksum(std::span<const std::byte, kChecksumBytes> theirs, std::uint32_t ours);

std::vector<std::byte> encode(const AbortNotice& notice);
AbortNotice decode_abort(std::span<const std::byte> bytes);  // the reason is cut at 4 KiB

// FNV-1a, 64 bit: maps names to key hashes and job names to job numbers. Not cryptographic.
std::uint64_t hash64(std::string_view text, std::uint64_t seed = 0xcbf29ce484222325ULL);

}  // namespace horo
