// Messages between the guard of an elastic job and its members: a message that decodes is encoded to the same bytes.
#include <algorithm>

#include "elastic/messages.h"
#include "horo/base/check.h"
#include "horo/base/error.h"
#include "tests/fuzz/targets.h"

namespace horo {

bool fuzz_members(std::span<const std::byte> bytes) {
  FuzzInput input(bytes);
  const bool is_of_member = input.number(1) % 2 == 0;
  const auto message = input.rest();
  try {
    const auto again = is_of_member ? encode(decode_member_message(message)) : encode(decode_guard_message(message));
    HORO_CHECK(std::equal(again.begin(), again.end(), message.begin(), message.end()));
    return true;
  } catch (const ProtocolError&) {
    return false;
  }
}

}  // namespace horo
