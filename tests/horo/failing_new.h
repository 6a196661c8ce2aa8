// operator new that fails when it is told to.
#pragma once

#include <atomic>

namespace horo {

// How many allocations of horo's threads go well until some fail; kAllGood: all do. Counts down.
inline constexpr int kAllGood = -1'000'000;
std::atomic<int>& good_allocations();
// How many fail then, one after the other.
std::atomic<int>& bad_allocations();
// How many of the calling thread, whosever it is, go well until one fails; negative: all do.
int& good_allocations_here();

}  // namespace horo
