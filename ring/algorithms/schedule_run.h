// The loop that runs schedules.
#pragma once

#include <cstddef>
#include <vector>

#include "ring/algorithms/messages.h"
#include "ring/schedule/schedule.h"
#include "ring/schedule/schedule_time.h"

namespace horo {

// Slices that may be under way together, by the members' hosts. Between hosts 16; inside one, where messages take
// microseconds, 4 hide what there is to hide, and fewer the more members share a core, as one works while another
// waits: more only push one another out of the caches that all members share.
std::size_t slots_for(const std::vector<int>& hosts, const MachineCost& machine);

// Runs this member's schedule, proven or made by a proven maker, on the collective's buffers. A long tensor goes
// through it in slices, several of them under way together, so that one is combined while others travel. Blocks until
// this member's part is done; throws what Transport::wait throws.
void run_schedule(const GroupContext& context, const Collective& collective, const Schedule& schedule);

// For who runs a reduction on memory that is no caller's: brings what a slice begins with, partial results in the
// accumulator type, and takes what comes out, of the collective's type. Slices are brought and taken in ascending
// order; either may wait for what other members have done before in theirs.
class SliceFeed {
 public:
  virtual ~SliceFeed() = default;
  virtual void fill_input(std::size_t slice, std::byte* in) = 0;
  virtual void take_output(std::size_t slice, const std::byte* out) = 0;
};

// `chunks`: those that this member's schedule has to do with, which lie side by side in what is brought and taken; of
// `slots` slices that are under way together. Both numbers of slots and slices are equal on all members.
struct Feeding {
  SliceFeed& feed;
  Part chunks;
  std::size_t slots;
};
void run_schedule(const GroupContext& context, const Collective& collective, const Schedule& schedule,
                  const Feeding& feeding);

}  // namespace horo
