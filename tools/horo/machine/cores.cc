#include "tools/horo/machine/cores.h"

#include <sched.h>

#include <algorithm>
#include <fstream>
#include <tuple>

#include "ring/os/waiting.h"

namespace horo::tools {
namespace {

int read_number(const std::string& path, int otherwise) {
  std::ifstream file(path);
  int number = otherwise;
  return file >> number ? number : otherwise;
}

}  // namespace

std::vector<int> allowed_cores() {
  cpu_set_t mask;
  CPU_ZERO(&mask);
  std::vector<std::tuple<int, int, int>> places;  // socket, core, processor
  if (::sched_getaffinity(0, sizeof(mask), &mask) != 0) return {0};
  for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
    if (!CPU_ISSET(static_cast<std::size_t>(cpu), &mask)) continue;
    const std::string topology = "/sys/devices/system/cpu/cpu" + std::to_string(cpu) + "/topology/";
    places.emplace_back(read_number(topology + "physical_package_id", 0), read_number(topology + "core_id", cpu), cpu);
  }
  std::sort(places.begin(), places.end());
  std::vector<int> cores;
  for (const auto& place : places) cores.push_back(std::get<2>(place));
  return cores;
}

int usable_cores() {
  return static_cast<int>(allowed_cores().size());
}

int granted_cores() {
  return cores_within(cgroup_limits(), usable_cores());
}

std::vector<std::vector<int>> split_cores(const std::vector<int>& cores, int ranks) {
  std::vector<std::vector<int>> shares;
  const std::size_t count = static_cast<std::size_t>(ranks);
  const std::size_t share = cores.size() / count, left = cores.size() % count;
  auto next = cores.begin();
  for (std::size_t rank = 0; rank < count; ++rank) {
    const auto end = next + static_cast<std::ptrdiff_t>(share + (rank < left ? 1 : 0));
    shares.emplace_back(next, end);
    next = end;
  }
  return shares;
}

std::string cores_text(const std::vector<int>& cores) {
  std::vector<int> sorted = cores;
  std::sort(sorted.begin(), sorted.end());
  std::string text;
  for (std::size_t i = 0; i < sorted.size();) {
    std::size_t last = i;
    while (last + 1 < sorted.size() && sorted[last + 1] == sorted[last] + 1) ++last;
    text += (text.empty() ? "" : ",") + std::to_string(sorted[i]);
    if (last > i) text += "-" + std::to_string(sorted[last]);
    i = last + 1;
  }
  return text;
}

}  // namespace horo::tools
