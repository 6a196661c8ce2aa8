// LaneGroups: the groups of one lane: that of all its members, and those of subsets that ran a collective.
#pragma once

#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "horo/base/config.h"
#include "horo/base/counters.h"
#include "ring/group.h"

namespace horo {

// Only the thread that runs the lane's tasks, except for all(). Transport and counters outlive it.
class LaneGroups {
 public:
  // Throws std::invalid_argument.
  LaneGroups(Transport& transport, Members members, const Config& config, Counters& counters);

  const Members& members() const { return members_; }
  // The group of these world ranks, which are members; no ranks: of all members. Its bytes are counted for process set
  // `set`.
  Group& of(const std::vector<int>& ranks, std::uint32_t set);
  // The group of all members. Any thread.
  std::shared_ptr<Group> all() const { return all_; }

 private:
  Transport& transport_;
  const Members members_;
  const Config& config_;
  Counters& counters_;
  const std::shared_ptr<Group> all_;  // shared with callers that allocate memory of it
  std::map<std::pair<std::uint32_t, std::vector<int>>, std::unique_ptr<Group>> some_;
};

}  // namespace horo
