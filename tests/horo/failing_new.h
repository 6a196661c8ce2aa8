// An operator new that fails on request.
#pragma once

#include <atomic>

namespace horo {

// The number of allocations of horo's threads that succeed before some fail; kAllGood: no failure. Counts down.
inline constexpr int kAllGood = -1'000'000;
std::atomic<int>& good_allocations();
// The number of allocations that fail then, one after the other.
std::atomic<int>& bad_allocations();
// The number of allocations of the calling thread that succeed before one fails; negative: no failure.
int& good_allocations_here();

}  // namespace horo
