// Joins: which members of each process set have joined it. Part of the leader. A rank that has joined a set is not
// needed for any tensor of it, until all members have joined.
#pragma once

#include <cstdint>
#include <map>

#include "controller/rank_set.h"
#include "horo/base/time.h"

namespace horo {

struct Join {
  RankSet ranks;
  int last = 0;                        // rank in the set of the member that joined last
  TimePoint since = TimePoint::min();  // the first of them
};

class Joins {
 public:
  explicit Joins(int size) : size_(size) {}

  // The ranks that have joined the set; null if there are none.
  const RankSet* ranks(std::uint32_t set) const {
    const auto found = joins_.find(set);
    return found == joins_.end() ? nullptr : &found->second.ranks;
  }
  bool contains(std::uint32_t set, int rank) const {
    const RankSet* joined = ranks(set);
    return joined != nullptr && joined->contains(rank);
  }
  void add(std::uint32_t set, int rank, int rank_in_set, TimePoint now) {
    Join& join = joins_.try_emplace(set, Join{RankSet(size_), 0, now}).first->second;
    join.ranks.insert(rank);
    join.last = rank_in_set;
  }
  // From here on no rank has joined the set.
  void clear(std::uint32_t set) { joins_.erase(set); }
  // The joins by set. It contains only sets that a rank has joined.
  const std::map<std::uint32_t, Join>& all() const { return joins_; }

 private:
  const int size_;
  std::map<std::uint32_t, Join> joins_;
};

}  // namespace horo
