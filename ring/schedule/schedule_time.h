// How long a schedule takes on a described machine: alpha (a message), beta (a byte on its way) and gamma (a byte that
// is summed), and what ranks share: a host's cores, and its rails to other hosts.
//
// A round takes as long as the busiest of all these needs for it, and then a latency. Slices follow one another through
// the rounds as schedule_run.h lets them: after the first one they come as fast as the busiest needs for all rounds of
// one, or as often as there are slots for them.
#pragma once

#include <cstddef>

#include "ring/schedule/schedule.h"

namespace horo {

// A way between two ranks. All in seconds.
struct LinkCost {
  double latency = 0;    // of a round, however many messages it has: on the way, and until a core works for it
  double message = 0;    // of a core, at each end
  double byte = 0;       // the same for each byte
  double wire_byte = 0;  // of the wire, in each direction: of a rank's own inside a host, of a rail between hosts
};

struct MachineCost {
  LinkCost inside;      // ranks of one host
  LinkCost between;     // ranks of different hosts
  double sum_byte = 0;  // seconds of a core for each byte that a sum reads
  double cores = 0;     // of a host, shared by its ranks; 0: one each
  int rails = 0;        // wires from a host to others, its ranks take turns on them; 0: one each
  // Of a tensor that is longer than this, what lies beyond costs cores so many times as much: each byte on its way, and
  // each byte that a sum reads.
  double cache_bytes = 0;
  double beyond_cache = 1;
  double sum_beyond_cache = 1;
};

// Loopback and a current core, roughly: where nothing was measured.
MachineCost usual_costs();

// What is moved: of an all_to_all what one member brings, of the other kinds the longer side.
struct Load {
  std::size_t bytes = 0;
  std::size_t element_bytes = 4;
  std::size_t accumulator_bytes = 4;
  std::size_t segment_bytes = 256 << 10;  // of a chunk in a slice
  std::size_t slots = 0;                  // slices that are under way together; 0: as many as schedule_run.cc has
};

struct Estimate {
  double seconds = 0;  // from the first rank's begin to the last one's end
  double work = 0;     // seconds that each core of the busiest host works for it; without shared cores, of a rank
};

// Looks at all members, or at some hosts of many (kMostSeen). Pure; the same bits on every machine that has IEEE
// doubles, so ranks that ask the same decide alike.
Estimate estimate(const Shape& shape, ScheduleMaker make, const Load& load, const MachineCost& machine);
inline double seconds_of(const Shape& shape, ScheduleMaker make, const Load& load, const MachineCost& machine) {
  return estimate(shape, make, load, machine).seconds;
}

}  // namespace horo
