// What messages and sums cost in this world: some hundreds of small and middling messages at the start, a few
// milliseconds in all, fitted to the terms in which schedules are priced (schedule_time.h).
#pragma once

#include <vector>

#include "horo/base/config.h"
#include "ring/group.h"
#include "ring/schedule/schedule_time.h"

namespace horo {

// Seconds of messages between ranks of one kind: small ones that go up a binomial tree of some ranks and down again,
// where most wait most of the time; and of an exchange of every rank with others at once: a message from each to the
// next one over, small and large, and small ones from each to several. Zero: there are no such ranks.
struct LinkSample {
  static constexpr std::size_t kSmallBytes = 8;
  static constexpr std::size_t kLargeBytes = 64 << 10;
  double tree = 0;
  double small = 0;
  double large = 0;
  double several = 0;
  int stops = 1;  // ranks in the tree
  int peers = 1;  // of the last one
};

struct WorldSample {
  LinkSample inside, between;
  double sum_byte = 0;      // seconds for each byte that a sum reads
  double sum_byte_far = 0;  // the same where its inputs do not fit into a core's own cache
  double cores = 1;         // of a host, the fewest
  int ranks_of_host = 1;    // the most
};

// Pure. Whatever was measured, costs come out positive and finite: a bad sample may cost speed, nothing else.
MachineCost fit(const WorldSample& sample);

// Measures with all ranks of the group at once, whose ranks are those of the transport; the same on all of them: the
// slowest rank's times count. `hosts`: by rank. Blocks until `deadline`; throws what Transport::wait() throws.
MachineCost measure_costs(Transport& transport, Group& group, const std::vector<int>& hosts, TimePoint deadline);

// "a round takes 3 us, a message 2 us of a core at each end, a byte 0.1 ns of it ...", for logs.
std::string say(const MachineCost& machine);

}  // namespace horo
