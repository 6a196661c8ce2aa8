#include "horo/lane/lane_groups.h"

#include <algorithm>

#include "horo/base/check.h"

namespace horo {
namespace {

constexpr std::size_t kMostKept = 256;  // a group has schedules and scratch memory

}  // namespace

LaneGroups::LaneGroups(Transport& transport, Members members, const Config& config, Counters& counters)
    : transport_(transport),
      members_(std::move(members)),
      config_(config),
      counters_(counters),
      all_(make_transport_group(transport, members_, config, counters)) {}

Group& LaneGroups::of(const std::vector<int>& ranks, std::uint32_t set) {
  if (set == members_.set && (ranks.empty() || ranks == members_.ranks)) return *all_;
  const std::pair key(set, ranks);
  if (const auto found = some_.find(key); found != some_.end()) return *found->second;
  Members some{ranks, set, {}, members_.costs, members_.arenas};
  for (const int rank : ranks) {
    const auto found = std::lower_bound(members_.ranks.begin(), members_.ranks.end(), rank);
    HORO_CHECK(found != members_.ranks.end() && *found == rank);
    if (!members_.hosts.empty()) {
      some.hosts.push_back(members_.hosts[static_cast<std::size_t>(found - members_.ranks.begin())]);
    }
  }
  if (some_.size() >= kMostKept) some_.clear();
  return *(some_[key] = make_transport_group(transport_, std::move(some), config_, counters_));
}

}  // namespace horo
