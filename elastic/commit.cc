#include "elastic/commit.h"

#include <algorithm>

namespace horo {

bool is_committed(const ProgressOf& progress, std::uint32_t lane, std::uint64_t number,
                  std::span<const MemberId> participants) {
  return std::all_of(participants.begin(), participants.end(), [&](MemberId id) {
    const auto member = progress.find(id);
    if (member == progress.end()) return true;  // it does not go on
    const auto complete = member->second.find(lane);
    return complete != member->second.end() && complete->second >= number;
  });
}

}  // namespace horo
