// Ends or stops its own process at a fail point (horo/base/fail_point.h), as environment variables say.
//
// TEST_KILL=ID:POINT:COUNT ends the process ID with SIGKILL at the COUNT-th time that it reaches the fail point;
// ID:POINT:COUNT+US lets it go on for so many microseconds after that; ID:after:US ends it so many microseconds after
// the start. TEST_STOP stops it with SIGSTOP; it continues after TEST_STOP_MS, if that is
// set. Several are separated by commas. A process first prints
// "fired ID:POINT:COUNT".
#pragma once

#include <cstdint>

namespace horo {

// Reads the variables for the process `id` and sets the hook of the fail points. Call it once, before any session.
void read_kills(int id);

// Call it before the exit, which destroys what a timer of TEST_KILL reads.
void forget_kills();

// What the process does at each fail point, beside its end. Set it before read_kills(); null: nothing.
extern void (*at_fail_point)(const char* name) noexcept;

}  // namespace horo
