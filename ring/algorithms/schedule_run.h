// Runs schedules over a transport.
#pragma once

#include <cstddef>
#include <vector>

#include "ring/algorithms/messages.h"
#include "ring/schedule/schedule.h"
#include "ring/schedule/schedule_time.h"

namespace horo {

// The number of slices that are in flight together. `hosts`: of the members. Between hosts there are 16. Inside one
// host messages take microseconds and 4 slices hide the latency; more slices evict one another from the shared cache.
// Where members share cores there are fewer, because one member works while another one waits.
std::size_t slots_for(const std::vector<int>& hosts, const MachineCost& machine);

// Runs this member's schedule on the collective's buffers. The schedule comes from a maker, or check_schedule() has
// accepted it. A long tensor is cut into slices, several of which are in flight together, so that one slice is combined
// while others are transferred. Blocks until this member's part is complete. Throws what Transport::wait throws, and
// std::runtime_error if a custom operation fails.
void run_schedule(const GroupContext& context, const Collective& collective, const Schedule& schedule);

// Supplies the input of a reduction slice by slice and consumes its output, in place of the collective's buffers.
// Inputs are partial results in the accumulator type; outputs have the collective's type. Both functions are called in
// ascending order of slices, and both may block until other members have processed earlier slices.
class SliceFeed {
 public:
  virtual ~SliceFeed() = default;
  virtual void fill_input(std::size_t slice, std::byte* in) = 0;
  virtual void take_output(std::size_t slice, const std::byte* out) = 0;
};

struct Feeding {
  SliceFeed& feed;
  Part chunks;        // that occur in this member's schedule; contiguous in inputs and outputs
  std::size_t slots;  // slices that are in flight together; equal on all members, as is the number of slices
};
void run_schedule(const GroupContext& context, const Collective& collective, const Schedule& schedule,
                  const Feeding& feeding);

}  // namespace horo
