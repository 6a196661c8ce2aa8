// The messages between a member of an elastic job and its guard: what decodes is encoded to the same bytes. Packets:
// any sequence is joined or refused, and that of a message gives the message.
#include <algorithm>

#include "elastic/messages.h"
#include "elastic/packets.h"
#include "horo/base/check.h"
#include "horo/base/error.h"
#include "tests/fuzz/targets.h"

namespace horo {
namespace {

void check_message(bool is_of_guard, std::span<const std::byte> bytes) {
  const std::vector<std::byte> again =
      is_of_guard ? encode(decode_guard_message(bytes)) : encode(decode_member_message(bytes));
  HORO_CHECK(std::ranges::equal(again, bytes));
}

void check_packets(FuzzInput& input) {
  const std::vector<std::byte> message(1 + input.number(3) % (3 * kMaxPacket), std::byte(input.number(1)));
  PacketJoiner joiner;
  std::optional<std::vector<std::byte>> whole;
  for (const std::vector<std::byte>& packet : packets_of(message)) {
    HORO_CHECK(!whole);
    whole = joiner.take(packet);
  }
  HORO_CHECK(whole == message);
}

// A header of the input, and one of a few sizes.
void join_packets(FuzzInput& input) {
  constexpr std::size_t kSizes[] = {0, 1, 2, 3, kMaxPacket - 1, kMaxPacket, kMaxPacket + 1};
  PacketJoiner joiner;
  while (!input.is_empty()) {
    std::vector<std::byte> packet(kSizes[input.below(std::size(kSizes))]);
    for (std::size_t i = 0; i < std::min<std::size_t>(packet.size(), 2); ++i) packet[i] = std::byte(input.number(1));
    if (const auto whole = joiner.take(packet)) HORO_CHECK(whole->size() <= kMaxMemberMessage);
  }
}

}  // namespace

bool fuzz_members(std::span<const std::byte> bytes) {
  FuzzInput input(bytes);
  const std::size_t what = input.number(1) % 4;
  try {
    if (what < 2) check_message(what == 1, input.rest());
    if (what == 2) check_packets(input);
    if (what == 3) join_packets(input);
    return true;
  } catch (const ProtocolError&) {
    return false;
  }
}

}  // namespace horo
