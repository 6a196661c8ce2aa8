#include "tests/fuzz/targets.h"

#include <algorithm>

namespace horo {
namespace {

constexpr FuzzTarget kTargets[] = {
    {"peer_infos", fuzz_peer_infos},
    {"checkpoints", fuzz_checkpoints},
    {"codecs", fuzz_codecs},
    {"credentials", fuzz_credentials, 2'000},
    {"frames", fuzz_frames},
    {"handshakes", fuzz_handshakes},
    {"host_messages", fuzz_host_messages},
    {"job_records", fuzz_job_records},
    {"members", fuzz_members},
    {"messages", fuzz_messages},
    {"record_logs", fuzz_record_logs, 5'000},
    {"schedules", fuzz_schedules},
    {"settings", fuzz_settings},
};

}  // namespace

std::span<const FuzzTarget> fuzz_targets() {
  return kTargets;
}

std::uint64_t FuzzInput::number(std::size_t bytes) {
  std::uint64_t value = 0;
  for (const std::byte byte : take(bytes)) value = value << 8 | std::to_integer<std::uint64_t>(byte);
  return value;
}

std::vector<std::byte> FuzzInput::take(std::size_t bytes) {
  const auto taken = left_.first(std::min(bytes, left_.size()));
  left_ = left_.subspan(taken.size());
  return {taken.begin(), taken.end()};
}

}  // namespace horo
