#include "elastic/commit.h"

#include <algorithm>

namespace horo {

bool is_committed(const View& view, std::uint32_t lane, std::uint64_t number, std::span<const MemberId> participants) {
  return std::all_of(participants.begin(), participants.end(), [&](MemberId id) {
    const auto member = view.progress.find(id);
    if (member == view.progress.end()) return true;  // it does not go on
    const auto progress = member->second.find(lane);
    return progress != member->second.end() && progress->second >= number;
  });
}

}  // namespace horo
