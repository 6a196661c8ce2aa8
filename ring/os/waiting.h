// How long a rank that waits for its peers keeps its core, by how many cores the ranks of its host have.
#pragma once

#include <atomic>
#include <string>

#include "horo/base/time.h"

namespace horo {

// What is here within this time is not worth a sleep, from which one has to be woken.
constexpr std::chrono::microseconds kBrief{100};

// Looking for bytes: first `spins` times in a row, then with the core offered to others in between, and after `awake`
// the rank sleeps until it is woken. `turn`: the longest that another rank keeps the core at what it waits for.
struct WaitPatience {
  int spins = 0;
  Duration awake{};
  Duration turn = kBrief;
};

// `has_memory`: some peers are behind shared memory, where a look costs no system call.
WaitPatience patience_for(int local_size, bool has_memory);

// Cores that this process may count on: those of its affinity mask, or fewer where control groups grant less time; 1 at
// least. `cgroups`: where they are mounted; `membership`: what /proc/self/cgroup says.
int cores_granted();
int cores_by_quota(const std::string& cgroups, const std::string& membership, int usable);

// Until this core has done all of before, but for stores that are on their way: it looks no further ahead.
inline void finish_loads() noexcept {
#if defined(__x86_64__)
  __builtin_ia32_lfence();
#elif defined(__aarch64__)
  __asm__ __volatile__("isb" ::: "memory");
#endif
}

void relax_core() noexcept;
void yield_core() noexcept;

// Waits for what other threads, or ranks, are just about to do: being woken takes several times as long as they need.
// Any thread.
class Lookout {
 public:
  // `turn`: the longest that somebody who hands something on keeps the core.
  explicit Lookout(Duration turn = kBrief) : turn_(turn) {}

  // Looks until `is_there()`, with the core offered to others in between, for 100 us at most. False: sleep now; after
  // one look where somebody was seen to keep the core, so that no more than a fiftieth of the time is lost to him.
  template <class IsThere>
  bool look(IsThere is_there) {
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
