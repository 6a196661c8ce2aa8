// The groups of one lane: of all its members, and of those who took part where not all did.
#pragma once

#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "horo/base/config.h"
#include "horo/base/counters.h"
#include "ring/group.h"

namespace horo {

// The lane's thread alone, but for all(). Transport and counters outlive it.
class LaneGroups {
 public:
  // Throws std::invalid_argument.
  LaneGroups(Transport& transport, Members members, const Config& config, Counters& counters);

  const Members& members() const { return members_; }
  // The group of these world ranks, some of the members, that is counted under this process set; none: of all members.
  Group& of(const std::vector<int>& ranks, std::uint32_t set);
  // The group of all members.
  std::shared_ptr<Group> all() const { return all_; }

 private:
  Transport& transport_;
  const Members members_;
  const Config& config_;
  Counters& counters_;
  const std::shared_ptr<Group> all_;  // also held by who allocates of it
  std::map<std::pair<std::uint32_t, std::vector<int>>, std::unique_ptr<Group>> some_;
};

}  // namespace horo
