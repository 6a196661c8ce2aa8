// Threads of horo inside the user's process.
#pragma once

#include <functional>
#include <thread>

namespace horo {

// Starts a thread with all signals blocked, so that the program's signal handlers run in its own threads. `name` is
// shown by top and gdb, up to 15 bytes. Throws std::system_error.
std::jthread start_thread(const char* name, std::function<void()> body);

}  // namespace horo
