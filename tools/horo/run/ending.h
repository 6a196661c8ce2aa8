// Processes that are about to end.
#pragma once

#include <sys/types.h>

#include <optional>

namespace horo::tools {

// The status (of waitpid()) with which a process ends, once no thread of it returns from the kernel. That is known
// before the kernel has freed its memory, for which it needs a quarter of a second with 4 GiB in small pages. Nothing:
// the process runs or is stopped, or does not exist.
std::optional<int> status_of_ending(pid_t pid);

}  // namespace horo::tools
