#include "ring/shm_sums.h"

#include <algorithm>

namespace horo {

void ShmSums::plan(const Collective& c) {
  if (std::ranges::equal(c.contributors, contributors_)) return;
  contributors_ = c.contributors;
  std::vector<std::int64_t> ids;
  givers_.clear();
  for (std::size_t member = 0; member < contributors_.size(); ++member) {
    if (contributors_[member] == kAbsent) continue;
    ids.push_back(contributors_[member]);
    givers_.push_back(static_cast<int>(member));
  }
  reducer_ = TreeReducer(canonical_tree(ids));
  inputs_.assign(ids.size(), {});
  few_.assign(ids.size(), {});
}

}  // namespace horo
