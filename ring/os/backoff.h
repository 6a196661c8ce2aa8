// The only sleep for a fixed time. All other waits are for an event.
#pragma once

#include <chrono>

namespace horo {

// Sleeps between two tries of something that no event announces, such as a port that another process still holds.
void back_off(std::chrono::milliseconds time);

}  // namespace horo
