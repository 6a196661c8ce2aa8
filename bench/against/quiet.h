// Detects other load on this machine, which makes measured times useless.
#pragma once

#include <string>

#include "horo/base/time.h"

namespace horo::bench {

// The time of all processors together since boot, in the kernel's units.
struct ProcessorTime {
  double idle = 0;
  double all = 0;
};

// Parses the text of /proc/stat. Time that the hypervisor gave to other machines does not count as idle.
ProcessorTime processor_time(const std::string& stat);

// The idle fraction of the time between two readings, 0 to 1; 1 if no time passed.
double idle_part(const ProcessorTime& before, const ProcessorTime& after);

constexpr double kQuietPart = 0.94;

// Blocks until the machine has been idle for 100 ms. Returns false if `patience` ends first; with a patience of 0 it
// measures one interval of 100 ms.
bool wait_for_quiet(Duration patience);

}  // namespace horo::bench
