// Measures the costs of messages and sums at the start of a session: some hundreds of messages in a few milliseconds.
// The times are fitted to the terms in which schedules are priced (schedule_time.h).
#pragma once

#include <vector>

#include "horo/base/config.h"
#include "ring/group.h"
#include "ring/schedule/schedule_time.h"

namespace horo {

// Seconds that messages take between ranks of one host, or between ranks of different hosts. Zero: not measured, as
// there are no such ranks.
struct LinkSample {
  static constexpr std::size_t kSmallBytes = 8;
  static constexpr std::size_t kLargeBytes = 64 << 10;
  double tree = 0;   // small messages up a binomial tree of some ranks and down again; most ranks wait most of the time
  double small = 0;  // every rank at once sends a small message to one peer and receives one
  double large = 0;  // the same with large messages
  double several = 0;  // the same with small messages to `peers` peers
  int stops = 1;       // ranks in the tree
  int peers = 1;
};

struct WorldSample {
  LinkSample inside, between;
  double sum_byte = 0;      // seconds per byte that a sum reads
  double sum_byte_far = 0;  // the same for inputs that do not fit into a core's own cache
  double cores = 1;         // of the host that has the fewest
  int ranks_of_host = 1;    // of the host that has the most
};

// Pure. Costs are positive and finite for any sample, so a bad sample may cost speed and nothing else.
MachineCost fit(const WorldSample& sample);

// Measures with all ranks of the transport at once; `group` has all of them. Returns the same costs on all ranks: for
// each time that of the slowest rank. `hosts`: by rank. Blocks until `deadline` at most; throws what Transport::wait()
// throws.
MachineCost measure_costs(Transport& transport, Group& group, const std::vector<int>& hosts, TimePoint deadline);

// For logs: "a round takes 3 us, a message 2 us of a core at each end, a byte 0.1 ns of it ...".
std::string say(const MachineCost& machine);

}  // namespace horo
