// TwoLevel: an all_reduce of members on several hosts, some of which share their host. Inside a host nothing travels:
// its members sum in their memory (ShmFeed). Between hosts each member exchanges its part of its host's sums with its
// like (Rails), by the schedule that one rank per host would take. Slice by slice, so that messages travel while others
// are summed.
//
// Sums are canonical where each host's contributors are a subtree of the canonical tree. What leaves a host is what one
// rank per host would send; of 16- and 8-bit floats float32 on the way to the last sum, as all partial sums do.
#pragma once

#include <map>
#include <memory>
#include <tuple>
#include <vector>

#include "ring/algorithms/shm/feed.h"
#include "ring/group/choose.h"
#include "ring/schedule/rails.h"

namespace horo {

// The thread that starts the group's collectives alone.
class TwoLevel {
 public:
  // `hosts`: by member; `room`: where the members of this host meet; null: there is one.
  TwoLevel(const Party& party, std::vector<int> hosts, const Prices& prices, std::unique_ptr<ShmFeed> room);

  // Whether hosts differ, not too many, and some have several members.
  static bool has_levels(const std::vector<int>& hosts);
  // All_reduces whose sums come out in the order that is asked for, but none of the caller's own operations. Equal on
  // all members.
  static bool takes(const Collective& collective, const std::vector<int>& hosts);
  static bool takes_pieces(const Collective& collective);

  // What a member does for collectives that are alike.
  struct Way {
    Schedule schedule;                       // of messages between hosts
    std::size_t segment_bytes;               // of a chunk in a slice
    std::vector<Part> chunks;                // by member of this host: which it sums
    std::vector<std::int64_t> contributors;  // the same; kAbsent
    bool is_idle;                            // nobody contributes
  };
  static Way way_of(const Collective& collective, const std::vector<int>& hosts, int member, const Prices& prices);

  // Of what it takes. Throws what Transport::wait() throws: a Mismatch on all members alike, after which the next one
  // works.
  void run(const Collective& collective);

 private:
  using Key = std::tuple<DType, Order, std::size_t, std::vector<std::int64_t>>;

  const Way& way_for(const Collective& c);
  void run_fed(const Collective& c, const Way& way, SliceFeed& feed) const;
  void spoil(const Collective& c, const Way& way) const;

  const Party party_;
  const std::vector<int> hosts_;
  const Prices prices_;
  std::vector<int> mates_;  // the members of this host, this one among them
  const std::unique_ptr<ShmFeed> room_;
  std::map<Key, Way> ways_;  // made once
};

}  // namespace horo
