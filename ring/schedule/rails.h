// Rails: how the members of several hosts divide the exchange between hosts. The tensor is cut into one part per rail.
// On every host one member owns each rail, and the owners of a rail run a schedule among themselves in which each of
// them stands for its host. The bytes that leave a host therefore do not depend on its number of members.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "ring/schedule/schedule.h"

namespace horo {

// Hosts in order of their first contributors. Where each host's contributors are a subtree of the canonical tree, one
// id per host represents them: the canonical tree over these ids joins the hosts' sums exactly as the whole tree does.
struct HostsOfGroup {
  std::vector<std::vector<int>> members;   // by host
  std::vector<std::int64_t> contributors;  // by host; kAbsent: no member of it contributes
  bool are_subtrees = false;

  int size() const { return static_cast<int>(members.size()); }
  int host_of(int member) const;
};

// `contributors` and `hosts`: by member, as in Collective and Members.
HostsOfGroup hosts_of_group(const std::vector<std::int64_t>& contributors, const std::vector<int>& hosts);

class Rails {
 public:
  // `most`: the maximum number of rails, at least 1.
  Rails(const HostsOfGroup& hosts, std::size_t most);

  int count() const { return count_; }
  // The rails of one member are neighbours; a member may have none.
  struct Run {
    int first = 0;
    int count = 0;
  };
  Run of(int member) const { return runs_[static_cast<std::size_t>(member)]; }

  // The member's schedule: that of its host, `of_host`, on each of the member's rails. In `of_host` members are hosts.
  // If it has N chunks, rail r has the chunks from r * N on. Each rail has scratch areas of its own.
  Schedule lay(const Schedule& of_host, int member) const;

 private:
  int owner(int host, int rail) const;

  const std::vector<std::vector<int>> members_;
  int count_ = 1;
  std::vector<Run> runs_;  // by member
};

}  // namespace horo
