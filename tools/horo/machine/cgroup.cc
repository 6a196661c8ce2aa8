// A limit may stand at the process's own cgroup or at any above it, and the smallest counts. Inside a container the
// membership names folders of the host that are not there: then the root of the mount is the container's own.
#include <algorithm>
#include <charconv>
#include <filesystem>
#include <optional>
#include <sstream>

#include "tools/horo/doctor/doctor.h"

namespace horo::tools {
namespace {

namespace fs = std::filesystem;

constexpr std::int64_t kNoLimitBytes = 1LL << 60;  // version 1 writes a huge number where there is none

std::optional<std::int64_t> number_in(const std::string& text) {
  std::int64_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || number < 0) return std::nullopt;
  return number;
}

void lower(Value& limit, std::optional<std::int64_t> other) {
  if (!other) return;
  const auto* known = std::get_if<std::int64_t>(&limit);
  limit = known == nullptr ? *other : std::min(*known, *other);
}

std::optional<std::int64_t> percent(std::optional<std::int64_t> quota, std::optional<std::int64_t> period) {
  if (!quota || !period || *period <= 0) return std::nullopt;
  return *quota * 100 / *period;
}

void read_v2(const fs::path& folder, CgroupLimits& limits) {
  std::istringstream cpu(first_line_of(folder / "cpu.max"));  // "max 100000" or "150000 100000"
  std::string quota, period;
  cpu >> quota >> period;
  lower(limits.cpu_quota_percent, percent(number_in(quota), number_in(period)));
  lower(limits.memory_bytes, number_in(first_line_of(folder / "memory.max")));
}

void read_v1(const fs::path& folder, CgroupLimits& limits) {
  lower(limits.cpu_quota_percent, percent(number_in(first_line_of(folder / "cpu.cfs_quota_us")),
                                          number_in(first_line_of(folder / "cpu.cfs_period_us"))));
  const auto bytes = number_in(first_line_of(folder / "memory.limit_in_bytes"));
  if (bytes && *bytes < kNoLimitBytes) lower(limits.memory_bytes, bytes);
}

// `read` for the folder of the membership and all above it, up to the mount.
template <class Read>
void read_upwards(const fs::path& mount, const std::string& membership, const Read& read) {
  fs::path path = fs::path(membership).relative_path().lexically_normal();
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

}  // namespace

CgroupLimits cgroup_limits(const std::string& membership, const std::string& root) {
  CgroupLimits limits;
  std::istringstream lines(membership);  // "0::/path" or "4:cpu,cpuacct:/path"
  for (std::string line; std::getline(lines, line);) {
    const std::size_t first = line.find(':');
    const std::size_t second = line.find(':', first + 1);
    if (first == std::string::npos || second == std::string::npos) continue;
    const std::string controllers = line.substr(first + 1, second - first - 1);
    const std::string path = line.substr(second + 1);
    if (controllers.empty()) {
      if (!fs::exists(fs::path(root) / "cgroup.controllers")) continue;
      limits.version = 2;
      read_upwards(root, path, [&](const fs::path& folder) { read_v2(folder, limits); });
      continue;
    }
    for (const char* wanted : {"cpu", "memory"}) {
      if (!names_controller(controllers, wanted)) continue;
      limits.version = std::max(limits.version, 1);
      for (const std::string& mount : {controllers, std::string(wanted)}) {
        read_upwards(fs::path(root) / mount, path, [&](const fs::path& folder) { read_v1(folder, limits); });
      }
    }
  }
  return limits;
}

}  // namespace horo::tools
