// Wait policies: how long a thread that waits for its peers polls before it sleeps.
//
// A word in shared memory arrives in a fraction of a microsecond; a wake-up takes several. But a core on which a rank
// spins while another rank needs it is lost for a whole scheduler tick. So a rank spins for long (2,000 polls) only if
// every rank of the host has a core. Otherwise it spins briefly (100 polls) and then offers its core between polls.
#pragma once

#include <atomic>
#include <string>

#include "horo/base/time.h"
#include "ring/os/cgroup.h"

namespace horo {

// The time of a brief wait: for events within it, polling is cheaper than a sleep and a wake-up. Longer polling loses
// where ranks share cores: with four ranks on two cores 16 MiB took 15 to 17 ms instead of 11 ms, because a polling
// rank keeps its core.
constexpr std::chrono::microseconds kBrief{100};

// The steps of a wait: `spins` polls in a row; then polls with the core offered to other threads in between; after
// `awake` the rank sleeps until it is woken. `turn`: the longest time for which an awaited rank may keep the core.
struct WaitPatience {
  int spins = 0;
  Duration awake{};
  Duration turn = kBrief;
};

// `has_memory`: some peers are reached through shared memory, where a poll costs no system call.
WaitPatience patience_for(int local_size, bool has_memory);

// The cores that this process may count on: those of its affinity mask, or fewer if control groups grant less time; at
// least 1.
int cores_granted();
int cores_within(const CgroupLimits& limits, int usable);

void relax_core() noexcept;
void yield_core() noexcept;

// A brief wait for an event that another thread or rank is about to cause. Any thread.
class BriefWait {
 public:
  // `turn`: the longest time for which the awaited thread keeps the core.
  explicit BriefWait(Duration turn = kBrief) : turn_(turn) {}

  // Polls `is_there()`, with the core offered to other threads in between, for kBrief at most. Returns whether it
  // became true; if not, the caller should sleep. After another thread has kept the core for longer than `turn`, calls
  // poll only once for a time, so that at most a fiftieth of the time is lost to that thread.
  template <class IsThere>
  bool poll(IsThere is_there) {
    const TimePoint began = Clock::now();
    for (TimePoint now = began; !is_there(); now = offer_core(now)) {
      if (now - began >= kBrief || is_crowded(now)) return false;
    }
    return true;
  }

 private:
  static constexpr int kShare = 50;  // a fiftieth

  bool is_crowded(TimePoint now) const noexcept;
  TimePoint offer_core(TimePoint now) noexcept;

  const Duration turn_;
  std::atomic<Duration> crowded_until_{Duration::min()};  // since the clock's epoch; orders nothing
};

}  // namespace horo
