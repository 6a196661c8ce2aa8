// A word in shared memory arrives in a fraction of a microsecond, a wake-up takes several, and a core that somebody
// else needs is lost for a whole tick if a rank spins on it: so it spins long only where there is a core for every
// rank, and elsewhere as long as two others need to take turns on their core.
#include "ring/os/waiting.h"

#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string_view>

namespace horo {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;

constexpr int kManyCores = 1 << 20;

// "max 100000" or "150000 100000" in one file (version 2); a number each in two files (version 1, -1: no limit).
int limited(const std::filesystem::path& folder, int cores) {
  double quota = -1, period = -1;
  std::ifstream(folder / "cpu.max") >> quota >> period;
  if (period <= 0) {
    std::ifstream(folder / "cpu.cfs_quota_us") >> quota;
    std::ifstream(folder / "cpu.cfs_period_us") >> period;
  }
  return quota > 0 && period > 0 ? std::min(cores, static_cast<int>(quota / period)) : cores;
}

std::string whole_file(const char* path) {
  std::ostringstream text;
  text << std::ifstream(path).rdbuf();
  return text.str();
}

// `usable` cores, or as many as control groups grant time for.
int cores_in_time(int usable) {
  return cores_by_quota("/sys/fs/cgroup", whole_file("/proc/self/cgroup"), usable);
}

}  // namespace

// A rank that is bound to a core of its own does not see the others' cores: whether it shares its own shows while it
// looks, whether all of them share their time does not. Ranks that share cores for certain move and sum for hundreds of
// microseconds at a time; who slept meanwhile would have to be woken, by the one whose core he needs.
WaitPatience patience_for(int local_size, bool has_memory) {
  const Duration turn = ::sysconf(_SC_NPROCESSORS_ONLN) < local_size ? milliseconds(1) : kBrief;
  if (!has_memory) return {0, cores_in_time(kManyCores) >= local_size ? kBrief : microseconds(0), turn};
  const bool has_room = cores_granted() >= std::max(1, local_size);
  return {has_room ? 2'000 : 100, microseconds(50), turn};
}

int cores_granted() {
  cpu_set_t mask;
  CPU_ZERO(&mask);
  const int usable = ::sched_getaffinity(0, sizeof(mask), &mask) == 0 ? std::max(1, CPU_COUNT(&mask)) : 1;
  return cores_in_time(usable);
}

// Lines "0::/a/b" (version 2) and "3:cpu,cpuacct:/a/b"; a limit may stand at any folder above as well. Inside a
// container the folders named may be missing: then the root of the mount is the container's own.
int cores_by_quota(const std::string& cgroups, const std::string& membership, int usable) {
  int cores = std::min({usable, limited(cgroups, usable), limited(cgroups + "/cpu", usable)});
  std::istringstream lines(membership);
  for (std::string line; std::getline(lines, line);) {
    const std::size_t first = line.find(':'), second = line.find(':', first + 1);
    if (first == std::string::npos || second == std::string::npos) continue;
    const std::string controllers = line.substr(first + 1, second - first - 1);
    const bool is_ours = controllers.empty() || controllers == "cpu" || controllers.starts_with("cpu,");
    if (!is_ours) continue;
    std::filesystem::path folder = line.substr(second + 1);
    const std::filesystem::path root = controllers.empty() ? cgroups : cgroups + "/" + controllers;
    for (; folder.has_relative_path(); folder = folder.parent_path()) {
      cores = std::min(cores, limited(root / folder.relative_path(), cores));
    }
  }
  return std::max(1, cores);
}

void relax_core() noexcept {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#endif
}

void yield_core() noexcept {
  ::sched_yield();
}

bool Lookout::is_crowded(TimePoint now) const noexcept {
  return now.time_since_epoch() < crowded_until_.load(std::memory_order_relaxed);
}

// Threads that only hand something on give the core back within microseconds.
TimePoint Lookout::offer_core(TimePoint now) noexcept {
  yield_core();
  const TimePoint back = Clock::now();
  const Duration away = back - now;
  if (away > turn_) crowded_until_.store(back.time_since_epoch() + kShare * away, std::memory_order_relaxed);
  return back;
}

}  // namespace horo
