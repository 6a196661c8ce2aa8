// How long a schedule takes on a described machine: alpha (a message), beta (a byte on its way) and gamma (a byte that
// is summed), and what ranks share: a host's cores, and its rails to other hosts.
//
// A round takes as long as the busiest of all these needs for it, and then a latency. Slices follow one another through
// the rounds as schedule_run.h lets them: after the first one they come as fast as the busiest needs for all rounds of
// one, or as often as there are slots for them.
#pragma once

#include <cstddef>

#include "ring/schedule/machine_cost.h"
#include "ring/schedule/schedule.h"

namespace horo {

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
