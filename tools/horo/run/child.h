// Starts one program of a job, in its own process group, with pipes for its output.
#pragma once

#include <sys/types.h>

#include <atomic>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <vector>

#include "tools/horo/machine/descriptor.h"

namespace horo::tools {

struct Program {
  std::vector<std::string> arguments;                 // the program first; found by PATH
  std::vector<std::string> environment;               // "NAME=value"
  std::vector<int> inherited_fds;                     // stay open under the same numbers
  std::string folder;                                 // its working directory; empty: this process's
  std::vector<int> cores;                             // its affinity; empty: this process's
  int input = -1;                                     // its stdin; -1: empty
  std::atomic<std::int32_t>* process_word = nullptr;  // shared memory that gets its number before it runs
  bool must_bind = false;                             // without the affinity, which a sandbox may refuse, it fails
};

struct Child {
  pid_t pid = 0;      // also the number of its process group
  Descriptor output;  // the read end of its stdout; non-blocking
  Descriptor errors;  // the same of its stderr
};

class StartFailed : public std::runtime_error {
 public:
  StartFailed(int exit_code, const std::string& why) : std::runtime_error(why), exit_code_(exit_code) {}
  int exit_code() const { return exit_code_; }  // a shell's: 127 not found, 126 not executable; 2: no folder

 private:
  int exit_code_;
};

// Returns once the program runs. The kernel kills it when this process ends for any reason. Throws
// StartFailed or std::system_error. Other threads may run meanwhile: the child calls only what is safe after fork().
Child start(const Program& program);

// Sends the signal to all processes of the group. Does nothing if there are none.
void signal_group(pid_t group, int signal) noexcept;

}  // namespace horo::tools
