// The folder of the sockets through which running jobs tell their state: PID.sock, PID: the guard's process.
#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

namespace horo::tools {

// Where they may be, the best place first: the folder horo in `runtime_folder`, the value of XDG_RUNTIME_DIR, which may
// be null or empty; then /tmp/horo-UID.
std::vector<std::string> status_folders(const char* runtime_folder, uid_t owner);

// Why others than the owner might change the folder; empty: they cannot. It must be a folder, no symbolic link, of mode
// 0700 and of this owner, and in a folder where others cannot replace it.
std::string folder_fault(const std::string& folder, uid_t owner);
// Makes the folder, if there is none. Returns its fault.
std::string make_private_folder(const std::string& folder, uid_t owner);

struct StatusSocket {
  pid_t job = 0;
  std::string path;
};
std::string socket_path(const std::string& folder, pid_t job);
// The sockets in the folder, which may be those of jobs that have ended. Other files are left out.
std::vector<StatusSocket> sockets_in(const std::string& folder);

}  // namespace horo::tools
