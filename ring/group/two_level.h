// TwoLevel: collectives of members on several hosts, some of which share a host. all_gather and reduce_scatter are in
// TwoLevelMoves. In an all_reduce the members of a host sum in shared memory (ShmFeed). Between hosts each member
// exchanges its part of its host's sum with its counterparts on the other hosts (Rails), by the schedule that one rank
// per host would choose. The tensor goes slice by slice, so that messages travel while other slices are summed.
//
// Sums are canonical if each host's contributors are a subtree of the canonical tree. A host sends as many bytes as one
// rank per host would; partial sums of 16- and 8-bit floats travel as float32.
//
// Agreement. All members have the same hosts, contributors, types and lengths, so they agree on the schedule. Which
// data path a host takes (ShmFeed) changes nothing on the other hosts.
//
// Mismatches. If the members of one host differ, they send messages with a wrong key hash, which the other hosts
// refuse. A member that receives a mismatch from another host announces to its host that it stops (ShmSync::give_up),
// and returns when no member of its host accesses its memory. So all members of all hosts throw a Mismatch.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <tuple>
#include <vector>

#include "ring/algorithms/shm/feed.h"
#include "ring/group/choose.h"
#include "ring/group/two_level_moves.h"
#include "ring/schedule/rails.h"

namespace horo {

// Owned by the thread that starts the group's collectives.
class TwoLevel {
 public:
  // `hosts`: by member. `memory`: of the members of this host; null if this member is alone on it.
  TwoLevel(const GroupContext& context, std::vector<int> hosts, const Prices& prices, std::unique_ptr<ShmSync> memory);

  // Whether there are several hosts, no more than 16, and one of them has several members.
  static bool has_levels(const std::vector<int>& hosts);
  // All_reduces whose sums come in the order that the collective asks for, without custom operations; and what
  // TwoLevelMoves takes. Equal on all members.
  static bool takes(const Collective& collective, const std::vector<int>& hosts, bool at_any_size);
  static bool takes_pieces(const Collective& collective);

  // The part of a member in collectives of one shape. Vectors are by member of this host.
  struct Assignment {
    Schedule schedule;                       // of messages between hosts
    std::size_t segment_bytes;               // of a chunk in a slice
    std::vector<Part> chunks;                // that the member sums
    std::vector<std::int64_t> contributors;  // ids; kAbsent
    bool is_empty;                           // no member contributes
  };
  static Assignment assignment_of(const Collective& collective, const std::vector<int>& hosts, int member,
                                  const Prices& prices);

  // Runs a collective that it takes. Blocks. Throws what Transport::wait() throws. A Mismatch is thrown on all
  // members, and the next collective works.
  void run(const Collective& collective);

 private:
  using Key = std::tuple<DType, Order, std::size_t, std::vector<std::int64_t>>;

  void all_reduce(const Collective& c);
  const Assignment& assignment_for(const Collective& c);
  void run_fed(const Collective& c, const Assignment& assignment, SliceFeed& feed) const;
  void send_mismatch(const Collective& c, const Assignment& assignment) const;

  const GroupContext context_;
  const std::vector<int> hosts_;
  const Prices prices_;
  std::vector<int> members_of_host_;  // by index in the group, this one among them
  const std::unique_ptr<ShmSync> memory_;
  std::optional<ShmFeed> feed_;
  TwoLevelMoves moves_;
  std::map<Key, Assignment> assignments_;
};

}  // namespace horo
