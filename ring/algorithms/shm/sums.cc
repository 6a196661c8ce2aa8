#include "ring/algorithms/shm/sums.h"

namespace horo {

void ShmSums::make_plan(const std::vector<std::int64_t>& contributors) {
  contributors_ = contributors;
  std::vector<std::int64_t> ids;
  members_.clear();
  for (std::size_t member = 0; member < contributors_.size(); ++member) {
    if (contributors_[member] == kAbsent) continue;
    ids.push_back(contributors_[member]);
    members_.push_back(static_cast<int>(member));
  }
  reducer_ = TreeReducer(canonical_tree(ids));
  inputs_.assign(ids.size(), {});
}

}  // namespace horo
