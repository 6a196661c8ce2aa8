// The one place where a thread waits for time to pass rather than for something to happen.
#pragma once

#include <chrono>

namespace horo {

// Between two tries of what nobody would announce: a port that another process is about to give back.
void back_off(std::chrono::milliseconds time);

}  // namespace horo
