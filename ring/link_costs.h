// What messages and sums cost in this world: a few exchanges of small and middling messages at the start, a few
// milliseconds in all, fitted to the terms in which schedules are priced (schedule_time.h).
#pragma once

#include <vector>

#include "horo/base/config.h"
#include "ring/group.h"
#include "ring/schedule_time.h"

namespace horo {

// Seconds of one exchange, every rank with others of one kind at once: a message from each to the next one over, small
// and large, and small ones from each to several. Zero: there are no such ranks.
struct LinkSample {
  static constexpr std::size_t kSmallBytes = 8;
  static constexpr std::size_t kLargeBytes = 64 << 10;
  double small = 0;
  double large = 0;
  double several = 0;
  int peers = 1;  // of the last one
};

struct WorldSample {
  LinkSample inside, between;
  double sum_byte = 0;    // seconds for each byte that a sum reads
  double cores = 1;       // of a host, the fewest
  int ranks_of_host = 1;  // the most
};

// Pure. Whatever was measured, costs come out positive and finite: a bad sample may cost speed, nothing else.
MachineCost fit(const WorldSample& sample);

// Measures with all ranks of the group at once, whose ranks are those of the transport; the same on all of them: the
// slowest rank's times count. `hosts`: by rank. Blocks until `deadline`; throws what Transport::wait() throws.
MachineCost measure_costs(Transport& transport, Group& group, const std::vector<int>& hosts, TimePoint deadline);

// "a message 12 us and 3 us of a core at each end, 1 MiB 250 us ...", for logs.
std::string say(const MachineCost& machine);

}  // namespace horo
