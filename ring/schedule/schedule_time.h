// Estimates the duration of a schedule on a described machine, with costs per message (alpha), per byte transferred
// (beta) and per byte summed (gamma), and with resources that ranks share: the cores of a host and its rails to other
// hosts.
//
// A round takes the time of its busiest resource and a latency. Slices are pipelined as in
// ring/algorithms/schedule_run.h: after the first slice, each further one takes the time that the busiest resource
// needs for all rounds of a slice, or the duration of a slice divided by the number of slots, whichever is longer.
#pragma once

#include <cstddef>

#include "ring/schedule/machine_cost.h"
#include "ring/schedule/schedule.h"

namespace horo {

// The size of a collective.
struct Load {
  std::size_t bytes = 0;  // of the longer one of input and output; of an all_to_all, one member's input
  std::size_t element_bytes = 4;
  std::size_t accumulator_bytes = 4;
  std::size_t segment_bytes = 256 << 10;  // of a slice's part of a chunk
  std::size_t slots = 0;                  // slices in flight together; 0: as in schedule_run.cc
};

struct Estimate {
  double seconds = 0;  // from the start of the first rank to the end of the last one
  double work = 0;     // seconds of work per core of the busiest host; without shared cores, of the busiest rank
};

// Considers all members, or a sample of hosts if there are more than kMostSampled members. Pure. The result has the
// same bits on every machine with IEEE doubles, so all ranks make the same decision.
Estimate estimate(const Shape& shape, ScheduleMaker make, const Load& load, const MachineCost& machine);
inline double seconds_of(const Shape& shape, ScheduleMaker make, const Load& load, const MachineCost& machine) {
  return estimate(shape, make, load, machine).seconds;
}

}  // namespace horo
