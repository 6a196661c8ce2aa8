// A program that a test starts, reads and kills.
#pragma once

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <stdexcept>
#include <string>
#include <vector>

#include "ring/os/socket.h"
#include "tests/ring/run_ranks.h"

namespace horo::test {

class Program {
 public:
  explicit Program(std::vector<std::string> arguments) {
    int ends[2];
    if (::pipe2(ends, O_CLOEXEC) != 0) throw std::runtime_error("pipe2");
    output_ = Fd(ends[0]);
    const Fd theirs(ends[1]);
    posix_spawn_file_actions_t actions;
    ::posix_spawn_file_actions_init(&actions);
    ::posix_spawn_file_actions_adddup2(&actions, theirs.get(), STDOUT_FILENO);
    std::vector<char*> argv;
    for (std::string& argument : arguments) argv.push_back(argument.data());
    argv.push_back(nullptr);
    const int error = ::posix_spawn(&pid_, argv[0], &actions, nullptr, argv.data(), environ);
    ::posix_spawn_file_actions_destroy(&actions);
    if (error != 0) throw std::runtime_error("posix_spawn");
  }
  Program(const Program&) = delete;
  Program& operator=(const Program&) = delete;
  ~Program() {
    kill();
    ::waitpid(pid_, nullptr, 0);
  }

  void kill() { ::kill(pid_, SIGKILL); }

  // The next line of its output; the incomplete line if it ends or the time has passed.
  std::string line() {
    std::string text;
    char letter = 0;
    for (const TimePoint until = soon(); Clock::now() < until;) {
      pollfd ready{output_.get(), POLLIN, 0};
      if (::poll(&ready, 1, 100) == 1 && ::read(output_.get(), &letter, 1) != 1) break;
      if (ready.revents == 0) continue;
      if (letter == '\n') break;
      text += letter;
    }
    return text;
  }

 private:
  Fd output_;
  pid_t pid_ = 0;
};

}  // namespace horo::test
