// The membership has lines "0::/a/b" (version 2) and "4:cpu,cpuacct:/a/b" (version 1). Inside a container it may name
// folders of the host that do not exist here; then the root of the mount is the container's own group.
#include "ring/os/cgroup.h"

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <fstream>
#include <sstream>

namespace horo {
namespace {

namespace fs = std::filesystem;

constexpr std::int64_t kNoLimitBytes = 1LL << 60;  // version 1 has a huge number where there is no limit

std::string first_line(const fs::path& file) {
  std::ifstream in(file);
  std::string line;
  std::getline(in, line);
  return line;
}

// Empty for "max", a negative number and anything else that is no number.
std::optional<std::int64_t> number_in(const std::string& text) {
  std::int64_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || number < 0) return std::nullopt;
  return number;
}

std::optional<std::int64_t> percent(std::optional<std::int64_t> quota, std::optional<std::int64_t> period) {
  if (!quota || !period || *period <= 0) return std::nullopt;
  return *quota * 100 / *period;
}

void lower(std::optional<std::int64_t>& limit, std::optional<std::int64_t> other) {
  if (other) limit = std::min(limit.value_or(*other), *other);
}

void read_v2(const fs::path& folder, CgroupLimits& limits) {
  std::istringstream cpu(first_line(folder / "cpu.max"));  // "max 100000" or "150000 100000"
  std::string quota, period;
  cpu >> quota >> period;
  lower(limits.cpu_quota_percent, percent(number_in(quota), number_in(period)));
  lower(limits.memory_bytes, number_in(first_line(folder / "memory.max")));
}

void read_v1(const fs::path& folder, CgroupLimits& limits) {
  lower(limits.cpu_quota_percent, percent(number_in(first_line(folder / "cpu.cfs_quota_us")),
                                          number_in(first_line(folder / "cpu.cfs_period_us"))));
  const auto bytes = number_in(first_line(folder / "memory.limit_in_bytes"));
  if (bytes && *bytes < kNoLimitBytes) lower(limits.memory_bytes, bytes);
}

// Calls `read` for the folder of a group and all folders above it, up to the mount.
template <class Read>
void read_upwards(const fs::path& mount, const std::string& group, const Read& read) {
  fs::path path = fs::path(group).relative_path().lexically_normal();
  for (; !path.empty() && path != "."; path = path.parent_path()) read(mount / path);
  read(mount);
}

bool names_controller(const std::string& controllers, const std::string& wanted) {
  std::istringstream names(controllers);
  for (std::string name; std::getline(names, name, ',');) {
    if (name == wanted) return true;
  }
  return false;
}

void read_group(const fs::path& mount, const std::string& controllers, const std::string& group, CgroupLimits& limits) {
  if (controllers.empty()) {
    if (!fs::exists(mount / "cgroup.controllers")) return;
    limits.version = 2;
    return read_upwards(mount, group, [&](const fs::path& folder) { read_v2(folder, limits); });
  }
  for (const char* wanted : {"cpu", "memory"}) {
    if (!names_controller(controllers, wanted)) continue;
    limits.version = std::max(limits.version, 1);
    for (const std::string& hierarchy : {controllers, std::string(wanted)}) {
      read_upwards(mount / hierarchy, group, [&](const fs::path& folder) { read_v1(folder, limits); });
    }
  }
}

}  // namespace

CgroupLimits cgroup_limits(const std::string& membership, const std::string& mount) {
  CgroupLimits limits;
  // In a container the mount is often the container's own group, whatever the membership says.
  read_v2(mount, limits);
  read_v1(fs::path(mount) / "cpu", limits);
  read_v1(fs::path(mount) / "memory", limits);
  std::istringstream lines(membership);
  for (std::string line; std::getline(lines, line);) {
    const std::size_t first = line.find(':');
    const std::size_t second = line.find(':', first + 1);
    if (first == std::string::npos || second == std::string::npos) continue;
    read_group(mount, line.substr(first + 1, second - first - 1), line.substr(second + 1), limits);
  }
  return limits;
}

CgroupLimits cgroup_limits() {
  std::ostringstream membership;
  membership << std::ifstream("/proc/self/cgroup").rdbuf();
  return cgroup_limits(membership.str(), "/sys/fs/cgroup");
}

}  // namespace horo
