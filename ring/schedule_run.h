// The loop that runs schedules.
#pragma once

#include "ring/host_algorithms.h"
#include "ring/schedule.h"

namespace horo {

// Runs this member's schedule, proven or made by a proven maker, on the collective's buffers. A long tensor goes
// through it in slices, several of them under way together, so that one is combined while others travel. Blocks until
// this member's part is done; throws what Transport::wait throws.
void run_schedule(const Party& party, const Collective& collective, const Schedule& schedule);

}  // namespace horo
