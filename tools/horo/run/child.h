// Starting one program of a job: with pipes for what it says, in a process group of its own.
#pragma once

#include <sys/types.h>

#include <stdexcept>
#include <string>
#include <vector>

#include "tools/horo/machine/descriptor.h"

namespace horo::tools {

struct Program {
  std::vector<std::string> arguments;    // the program first; found by PATH
  std::vector<std::string> environment;  // "NAME=value"
  int inherited_fd = -1;                 // stays open, under its number
  std::string folder;                    // where it runs; empty: here
  std::vector<int> cores;                // where it may run; empty: everywhere
};

struct Child {
  pid_t pid = 0;      // also the number of its process group
  Descriptor output;  // what it writes; non-blocking
  Descriptor errors;
};

class StartFailed : public std::runtime_error {
 public:
  StartFailed(int exit_code, const std::string& why) : std::runtime_error(why), exit_code_(exit_code) {}
  int exit_code() const { return exit_code_; }  // as a shell says it: 127 not found, 126 not executable; 2: no folder

 private:
  int exit_code_;
};

// Returns when the program runs. Its input is empty. It is killed when this process ends, however that comes. Throws
// StartFailed or std::system_error. Not while this process has more than one thread.
Child start(const Program& program);

// To all processes of the group; no error if none is left.
void signal_group(pid_t group, int signal) noexcept;

}  // namespace horo::tools
