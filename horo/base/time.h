// The one clock of the engine. Pure code takes a TimePoint as an argument and never reads it.
#pragma once

#include <chrono>
#include <cstdint>

namespace horo {

using Clock = std::chrono::steady_clock;
using TimePoint = Clock::time_point;
using Duration = Clock::duration;

// Whole microseconds; 0 if `to` is not later.
inline std::uint64_t microseconds_between(TimePoint from, TimePoint to) {
  const auto passed = std::chrono::duration_cast<std::chrono::microseconds>(to - from).count();
  return passed > 0 ? static_cast<std::uint64_t>(passed) : 0;
}

// A wait is cut into slices of at most this length, so that abort and peer loss are seen in between.
inline constexpr std::chrono::milliseconds kWaitSlice{2};

}  // namespace horo
