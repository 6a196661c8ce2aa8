// A frame header is accepted only if it is, byte for byte, what encode() writes for some frame within the limit; a
// reader never returns more bytes than arrived. Random bytes rarely have a valid checksum, so one mode computes it.
#include <algorithm>

#include "horo/base/check.h"
#include "horo/base/crc32c.h"
#include "horo/base/error.h"
#include "horo/base/wire.h"
#include "tests/fuzz/targets.h"

namespace horo {
namespace {

constexpr std::uint64_t kMaxLength = 1 << 20;

bool accept_header(const FrameBytes& bytes) {
  const Frame frame = decode_frame(bytes, kMaxLength);
  HORO_CHECK(frame.length <= kMaxLength);
  HORO_CHECK(encode(frame) == bytes);
  return true;
}

bool raw_header(FuzzInput& input) {
  FrameBytes bytes{};
  const auto noise = input.take(bytes.size());
  std::copy(noise.begin(), noise.end(), bytes.begin());
  return accept_header(bytes);
}

// A good header with some bytes changed and a checksum that fits again.
bool patched_header(FuzzInput& input) {
  Frame frame;
  frame.kind = static_cast<FrameKind>(1 + input.below(5));
  frame.job = input.number(8);
  frame.from = static_cast<std::uint32_t>(input.number(4));
  frame.plan = input.number(8);
  frame.length = input.number(3) % (2 * kMaxLength);
  frame.is_checked = input.below(2) == 1;
  FrameBytes bytes = encode(frame);
  while (!input.is_empty()) bytes[input.below(kFrameBytes - kChecksumBytes)] ^= static_cast<std::byte>(input.number(1));
  const std::uint32_t checksum = crc32c(std::span(bytes).first(kFrameBytes - kChecksumBytes));
  for (std::size_t i = 0; i < kChecksumBytes; ++i) {
    bytes[kFrameBytes - kChecksumBytes + i] = static_cast<std::byte>(checksum >> (8 * i));
  }
  return accept_header(bytes);
}

bool abort_notice(FuzzInput& input) {
  const AbortNotice notice = decode_abort(input.rest());
  const AbortNotice again = decode_abort(encode(notice));
  HORO_CHECK(notice.reason.size() <= 4096 && notice.origin >= -1);
  HORO_CHECK(again.origin == notice.origin && again.reason == notice.reason);
  return true;
}

std::vector<std::uint64_t> list(ByteReader& in) {
  std::vector<std::uint64_t> values(in.count(8));
  for (std::uint64_t& value : values) value = in.u64();
  return values;
}

// Fields in an order that the bytes themselves choose, as a parser of a message with lists in it reads them.
bool fields(FuzzInput& input) {
  ByteReader in(input.rest());
  std::size_t taken = 0;
  while (in.left() > 0) {
    const int choice = in.u8() % 6;
    if (choice == 0) taken += in.text(64).size();
    if (choice == 1) taken += list(in).size() * 8;
    if (choice == 2) taken += in.raw(in.u16()).size();
    if (choice == 3) in.u64();
    if (choice == 4) in.f64();
    if (choice == 5) in.expect_end();
    HORO_CHECK(taken <= input.rest().size());
  }
  return true;
}

}  // namespace

bool fuzz_frames(std::span<const std::byte> bytes) {
  FuzzInput input(bytes);
  try {
    switch (input.number(1) % 4) {
      case 0:
        return raw_header(input);
      case 1:
        return patched_header(input);
      case 2:
        return abort_notice(input);
      default:
        return fields(input);
    }
  } catch (const ProtocolError&) {
    return false;
  }
}

}  // namespace horo
