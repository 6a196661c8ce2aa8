// A thread of ours inside somebody else's process.
#pragma once

#include <functional>
#include <thread>

namespace horo {

// Starts a thread that no signal of the process is delivered to: the program's handlers run in its own threads, which
// expect them. `name` is seen in top and gdb, up to 15 bytes. Throws std::system_error.
std::jthread start_thread(const char* name, std::function<void()> body);

}  // namespace horo
