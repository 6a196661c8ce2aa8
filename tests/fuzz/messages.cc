// A message that decodes is encoded and decoded again to the same value: no field is lost or invented.
#include "controller/messages.h"

#include "horo/base/check.h"
#include "horo/base/error.h"
#include "tests/fuzz/targets.h"

namespace horo {
namespace {

CoordinatorConfig config() {
  CoordinatorConfig config;
  config.size = 3;
  config.max_tensors = 64;
  config.max_plans = 16;
  config.max_name_bytes = 32;
  config.max_dims = 4;
  return config;
}

std::vector<std::byte> again(bool up, std::span<const std::byte> message) {
  return up ? encode(decode_up(message, config())) : encode(decode_down(message, config()));
}

}  // namespace

bool fuzz_messages(std::span<const std::byte> bytes) {
  FuzzInput input(bytes);
  const bool up = input.number(1) % 2 == 0;
  try {
    const std::vector<std::byte> once = again(up, input.rest());
    HORO_CHECK(again(up, once) == once);
    return true;
  } catch (const ProtocolError&) {
    return false;
  }
}

}  // namespace horo
