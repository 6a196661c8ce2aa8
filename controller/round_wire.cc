// Numbers are written as LEB128: seven bits per byte, the lowest first; the highest bit of a byte says that another
// byte follows.
#include "controller/round_wire.h"

#include "horo/base/error.h"

namespace horo {
namespace {

constexpr std::size_t kLeastBegunBytes = 11;   // set, stream, step, number
constexpr std::size_t kLeastFailedBytes = 13;  // set, stream, length of the reason

void write_number(ByteWriter& out, std::uint64_t number) {
  for (; number >= 0x80; number >>= 7) out.u8(static_cast<std::uint8_t>(number | 0x80));
  out.u8(static_cast<std::uint8_t>(number));
}

std::uint64_t read_number(ByteReader& in) {
  std::uint64_t number = 0;
  for (unsigned shift = 0; shift < 64; shift += 7) {
    const std::uint64_t byte = in.u8();
    const std::uint64_t bits = byte & 0x7f;
    if (bits << shift >> shift != bits) break;
    number |= bits << shift;
    if (byte < 0x80) return number;
  }
  throw ProtocolError("a number of more than 64 bits");
}

// The number of elements of at least `least_bytes` each that follow.
std::size_t read_count(ByteReader& in, std::size_t least_bytes) {
  const std::uint64_t count = read_number(in);
  if (count <= in.left() / least_bytes) return static_cast<std::size_t>(count);
  throw ProtocolError(std::to_string(count) + " rounds in a message with " + std::to_string(in.left()) +
                      " bytes for them");
}

void write_stream(ByteWriter& out, const RoundStream& stream) {
  write_number(out, stream.set);
  out.u64(stream.number);
}

RoundStream read_stream(ByteReader& in) {
  const std::uint64_t set = read_number(in);
  const std::uint64_t number = in.u64();
  if (set > UINT32_MAX || number == 0) {
    throw ProtocolError("round stream " + std::to_string(number) + " of process set " + std::to_string(set));
  }
  return {static_cast<std::uint32_t>(set), number};
}

}  // namespace

void write_rounds(ByteWriter& out, const UpMessage& message) {
  write_number(out, message.rounds.size());
  for (const RoundBegun& begun : message.rounds) {
    write_stream(out, begun.stream);
    write_number(out, begun.round.step);
    write_number(out, begun.round.round);
  }
  write_number(out, message.failed_rounds.size());
  for (const RoundFailed& failed : message.failed_rounds) {
    write_stream(out, failed.stream);
    out.text(failed.reason);
  }
}

void read_rounds(ByteReader& in, UpMessage& message) {
  message.rounds.resize(read_count(in, kLeastBegunBytes));
  for (RoundBegun& begun : message.rounds) {
    begun.stream = read_stream(in);
    begun.round.step = read_number(in);
    begun.round.round = read_number(in);
  }
  message.failed_rounds.resize(read_count(in, kLeastFailedBytes));
  for (RoundFailed& failed : message.failed_rounds) {
    failed.stream = read_stream(in);
    failed.reason = in.text(kMaxReasonBytes);
  }
}

}  // namespace horo
