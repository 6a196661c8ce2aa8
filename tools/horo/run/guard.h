// The guard: a process between `horo run` and the ranks. It ensures that no process of a job outlives the job.
#pragma once

#include <functional>
#include <string>

namespace horo::tools {

// Runs `work` in a process of its own, the guard, which is the subreaper of its descendants. Blocks; returns the result
// of `work`. Forwards SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1 and SIGUSR2 to the guard. `work` starts with these
// signals blocked; `lifeline_fd` reaches its end when this process dies. After `work` has returned, or the guard or
// this process has been killed, every descendant is killed, including those in their own sessions. Throws
// std::system_error. This process must have one thread only.
int run_guarded(const std::string& title, const std::function<int(int lifeline_fd)>& work);

// Kills all descendants of this process until none is left. This process must be a subreaper. Reports on stderr a
// process that cannot be killed within 10 s.
void kill_descendants(const std::string& title) noexcept;

}  // namespace horo::tools
