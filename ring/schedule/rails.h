// Rails: how the members of several hosts share out what their hosts exchange. The tensor is cut into a part for each
// rail; on every host one member owns each rail, and the owners of a rail run a schedule of hosts among themselves. So
// what leaves a host is what one rank per host would send, however many members the hosts have.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "ring/schedule/schedule.h"

namespace horo {

// Hosts in the order of their contributors. Where each host's contributors are a subtree of the canonical tree, one id
// of each stands for all of them: the tree over these ids is what is left of the whole one when each host has summed.
struct HostsOfGroup {
  std::vector<std::vector<int>> members;   // by host
  std::vector<std::int64_t> contributors;  // by host; kAbsent: no member of it contributes
  bool are_subtrees = false;

  int size() const { return static_cast<int>(members.size()); }
  int host_of(int member) const;
};

// `contributors` and `hosts`: by member, as Collective and Members have them.
HostsOfGroup hosts_of_group(const std::vector<std::int64_t>& contributors, const std::vector<int>& hosts);

class Rails {
 public:
  // `most`: no more rails than that; 1 at least.
  Rails(const HostsOfGroup& hosts, std::size_t most);

  int count() const { return count_; }
  // Of one member, neighbours; perhaps none.
  struct Run {
    int first = 0;
    int count = 0;
  };
  Run of(int member) const { return runs_[static_cast<std::size_t>(member)]; }

  // The schedule of a member's host (`of_hosts` has a member for each host), on each of the member's rails: of N chunks
  // a rail r has those from r * N on. Areas for each rail follow one another.
  Schedule lay(const Schedule& of_host, int member) const;

 private:
  int owner(int host, int rail) const;

  const std::vector<std::vector<int>> members_;
  int count_ = 1;
  std::vector<Run> runs_;  // by member
};

}  // namespace horo
