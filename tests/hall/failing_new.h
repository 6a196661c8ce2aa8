// operator new that fails when it is told to.
#pragma once

#include <atomic>

namespace horo {

// How many allocations of horo's threads go well until one fails; negative: all do.
std::atomic<int>& good_allocations();

}  // namespace horo
