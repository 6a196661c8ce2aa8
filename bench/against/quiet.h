// Whether somebody else uses this machine: numbers that are measured meanwhile are worth nothing.
#pragma once

#include <string>

#include "horo/base/time.h"

namespace horo::tools {

// Time of all processors together, in the kernel's units, since the machine started.
struct ProcessorTime {
  double idle = 0;
  double all = 0;
};

// From the text of /proc/stat. Time that a hypervisor gave to others was not idle.
ProcessorTime processor_time(const std::string& stat);

// The idle part of what went by, 0 to 1; 1 if nothing did.
double idle_part(const ProcessorTime& before, const ProcessorTime& after);

constexpr double kQuietPart = 0.94;

// Blocks until the machine was idle for 100 ms; false: not within the time, or, without any, not now.
bool wait_for_quiet(Duration patience);

}  // namespace horo::tools
