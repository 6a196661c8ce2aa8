// The one clock of the engine. Pure code takes a TimePoint as an argument and never reads it.
#pragma once

#include <chrono>

namespace horo {

using Clock = std::chrono::steady_clock;
using TimePoint = Clock::time_point;
using Duration = Clock::duration;

// A wait is cut into slices of at most this length, so that abort and peer loss are seen in between.
inline constexpr std::chrono::milliseconds kWaitSlice{2};

}  // namespace horo
