// The processes above this one, as /proc shows them: how a rank finds `horo run` where nothing was inherited from it.
#pragma once

#include <sys/types.h>

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace horo {

// The parent of a process; 0 if there is none, or the process is not visible.
pid_t parent_of(pid_t pid);

// This process, its parent, and so on up to, and without, the process `until` or the first one.
std::vector<pid_t> lineage(pid_t until = 0);

// The nearest ancestor of that name (PR_SET_NAME); 0 if there is none.
pid_t ancestor_named(std::string_view name);

// The first open descriptor of a process that is a memory file of that name (memfd_create); -1 if it has none. Nothing:
// this process may not look.
std::optional<int> memory_file_of(pid_t pid, std::string_view name);

// Whether a descriptor of a process is a memory file of that name.
bool is_memory_file(pid_t pid, int fd, std::string_view name);

// Opens another process's descriptor anew; -1, with errno, if that is not allowed.
int open_of(pid_t pid, int fd, int flags);

}  // namespace horo
