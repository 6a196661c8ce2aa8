// The limits that Linux control groups set for this process.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace horo {

struct CgroupLimits {
  int version = 0;                                // of the control groups; 0: none found
  std::optional<std::int64_t> cpu_quota_percent;  // of one core; empty: no limit
  std::optional<std::int64_t> memory_bytes;       // empty: no limit
};

// The smallest limits of a process's control groups and all groups above them. `membership`: the text of
// /proc/self/cgroup; `mount`: where the hierarchies are mounted. What cannot be read or parsed counts as no limit.
CgroupLimits cgroup_limits(const std::string& membership, const std::string& mount);
// The same for this process.
CgroupLimits cgroup_limits();

}  // namespace horo
