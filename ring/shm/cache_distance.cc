#include "ring/shm/cache_distance.h"

#include <algorithm>

namespace horo {
namespace {

// Of a line; a longer time means another cache. Long tensors took 1.5 ms through the caches and 3.0 ms past them where
// a line took 30 ns, and 3.5 ms and 1.9 ms where it took 135 ns. Between two caches 256 KiB took 50 us through them and
// 23 us past them; within one cache 64 KiB took 3 us and 8 us.
constexpr std::chrono::nanoseconds kRemoteLine{80};
constexpr std::size_t kLongBytes = 1 << 20;   // every collective of this length probes
constexpr std::uint64_t kProbeInterval = 16;  // of the shorter ones

}  // namespace

void CacheLineProbe::write(std::uint64_t value) noexcept {
  for (Line& line : lines_) line.value.store(value, std::memory_order_relaxed);
}

// Reading the clock waits for all earlier instructions, loads included.
Duration CacheLineProbe::read(std::uint64_t value) const noexcept {
  constexpr std::array<std::size_t, kLines> kOrder{3, 1, 4, 0, 2};  // no pattern that a prefetcher follows
  std::array<Duration, kLines> taken;
  for (const std::size_t at : kOrder) {
    const TimePoint begin = Clock::now();
    const std::uint64_t found = lines_[at].value.load(std::memory_order_relaxed);
    asm volatile("" : : "r"(found));
    taken[at] = Clock::now() - begin;
    if (found != value) return {};
  }
  std::nth_element(taken.begin(), taken.begin() + kLines / 2, taken.end());
  return taken[kLines / 2];
}

void CacheDistances::set(const std::string& setting) {
  is_given_ = setting != "auto";
  remote_.assign(remote_.size(), setting == "on" ? 1 : 0);
  remote_count_ = setting == "on" ? size_ : 0;
}

bool CacheDistances::is_probe_due(std::size_t bytes) {
  if (size_ < 2 || is_given_) return false;
  const bool is_due = bytes >= kLongBytes || short_collectives_++ % kProbeInterval == 0;
  probes_ += is_due ? 1 : 0;
  return is_due;
}

int CacheDistances::next_to_probe() const {
  const auto ahead = static_cast<int>(probes_ % static_cast<std::uint64_t>(size_ - 1)) + 1;
  return (index_ + ahead) % size_;
}

void CacheDistances::record(int member, Duration line) {
  if (line == Duration{}) return;
  char& is_remote = remote_[static_cast<std::size_t>(member)];
  const bool is_remote_now = line > kRemoteLine;
  remote_count_ += (is_remote_now ? 1 : 0) - is_remote;
  is_remote = is_remote_now ? 1 : 0;
}

}  // namespace horo
