// The guard: a process between `horo run` and the ranks, so that nothing of a job outlives it, however it ends.
#pragma once

#include <functional>
#include <string>

namespace horo::tools {

// Runs `work` in a process of its own, which adopts whatever its descendants leave behind, and returns what it returns.
// SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1 and SIGUSR2 are passed on to that process. `work` gets a descriptor that
// comes to its end when this process dies, and begins with all of those signals blocked. When it has returned, and also
// when that process or this one is killed, every descendant is killed, those in sessions of their own as well. Throws
// std::system_error. Not while this process has more than one thread.
int run_guarded(const std::string& title, const std::function<int(int lifeline_fd)>& work);

// Kills every descendant of this process, and theirs, until none is left. For an adopter alone. Says on stderr which
// one cannot be killed within 10 s.
void kill_descendants(const std::string& title) noexcept;

}  // namespace horo::tools
