#include "ring/os/waiting.h"

#include <sched.h>
#include <unistd.h>

#include <algorithm>

namespace horo {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;

constexpr int kManyCores = 1 << 20;

}  // namespace

// A rank that is bound to a core has no information about the cores of other ranks. While it polls, it detects whether
// it shares its core (BriefWait), but not whether all ranks together exceed a CPU quota, so the quota is checked here.
// If the host has fewer cores than ranks, a rank computes for hundreds of microseconds at a time. A rank that slept
// meanwhile would have to be woken by the rank whose core it needs, so `turn` is long then. The exact numbers matter
// little: 10 or 100 spins and 5 or 50 us awake make no measurable difference to a training step.
WaitPatience patience_for(int local_size, bool has_memory) {
  const Duration turn = ::sysconf(_SC_NPROCESSORS_ONLN) < local_size ? milliseconds(1) : kBrief;
  if (!has_memory) {
    const bool is_granted = cores_within(cgroup_limits(), kManyCores) >= local_size;
    return {0, is_granted ? kBrief : microseconds(0), turn};
  }
  const bool is_roomy = cores_granted() >= std::max(1, local_size);
  return {is_roomy ? 2'000 : 100, microseconds(50), turn};
}

int cores_granted() {
  cpu_set_t mask;
  CPU_ZERO(&mask);
  const int usable = ::sched_getaffinity(0, sizeof(mask), &mask) == 0 ? std::max(1, CPU_COUNT(&mask)) : 1;
  return cores_within(cgroup_limits(), usable);
}

int cores_within(const CgroupLimits& limits, int usable) {
  if (!limits.cpu_quota_percent) return usable;
  return static_cast<int>(std::clamp<std::int64_t>(*limits.cpu_quota_percent / 100, 1, usable));
}

void relax_core() noexcept {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#endif
}

void yield_core() noexcept {
  ::sched_yield();
}

bool BriefWait::is_crowded(TimePoint now) const noexcept {
  return now.time_since_epoch() < crowded_until_.load(std::memory_order_relaxed);
}

// A thread that only hands something on gives the core back within microseconds. One that keeps it longer is computing.
TimePoint BriefWait::offer_core(TimePoint now) noexcept {
  yield_core();
  const TimePoint back = Clock::now();
  const Duration away = back - now;
  if (away > turn_) crowded_until_.store(back.time_since_epoch() + kShare * away, std::memory_order_relaxed);
  return back;
}

}  // namespace horo
