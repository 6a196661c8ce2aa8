// How long a rank that waits for its peers keeps its core, by how many cores the ranks of its host have.
#pragma once

#include <string>

#include "horo/base/time.h"

namespace horo {

// Looking for bytes: first `spins` times in a row, then with the core offered to others in between, and after `awake`
// the rank sleeps until it is woken.
struct Patience {
  int spins = 0;
  Duration awake{};
};

// `has_memory`: some peers are behind shared memory, where a look costs no system call.
Patience patience_for(int local_size, bool has_memory);

// Cores that this process may count on: those of its affinity mask, or fewer where control groups grant less time; 1 at
// least. `cgroups`: where they are mounted; `membership`: what /proc/self/cgroup says.
int cores_granted();
int cores_by_quota(const std::string& cgroups, const std::string& membership, int usable);

void relax_core() noexcept;
void yield_core() noexcept;

}  // namespace horo
