// The calls by which a process changes files, in the hands of a test: this program's own definitions stand before those
// of the C library. A test counts them, lets them fail, or looks at the disk between two of them.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <functional>
#include <string>

namespace horo::test {

struct SystemCall {
  std::string name;  // "pwrite"
  int fd = -1;       // the file, or the folder of the path
  std::string path;  // the first one, where there is one
  bool is_done = false;
  bool creates = false;  // openat: makes the file
};

// Before the call (is_done is false): 0, or the errno with which it fails instead. After it, if it succeeded: no
// effect. Called by the thread that makes the call; calls that the hook makes itself are not told.
using SystemCallHook = std::function<int(const SystemCall&)>;
void set_system_call_hook(SystemCallHook hook);  // empty: none

// The errno with which each fstatat() fails; 0: none does.
void set_stat_error(int error);

// The most bytes that one pwrite() moves; 0: as many as it is given.
void set_short_writes(std::size_t most);

}  // namespace horo::test
