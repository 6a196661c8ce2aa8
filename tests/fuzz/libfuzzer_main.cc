// The entry that libFuzzer calls; HORO_FUZZ_TARGET is one name of fuzz_targets().
#include <cstdint>

#include "tests/fuzz/targets.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  for (const horo::FuzzTarget& target : horo::fuzz_targets()) {
    if (target.name == HORO_FUZZ_TARGET) target.run(std::as_bytes(std::span(data, size)));
  }
  return 0;
}
