// Running a program on several ranks of this host, from their start to their end.
#pragma once

#include <string>
#include <vector>

namespace horo {

struct Launch {
  int ranks = 1;
  std::vector<std::string> command;
  std::string title = "horo run";  // who speaks in messages
  bool prefixed = true;            // "[rank] " in front of every line
};

// Starts the ranks and passes on what they say. When one fails, the others have 5 s to end by themselves, then they are
// told (SIGTERM), then killed. SIGINT, SIGTERM and SIGHUP are passed on; a second one kills. No process is left when it
// returns: 0, or how the first rank that failed ended: its exit code, 128 + its signal, 127 or 126 if there is no such
// program. Throws std::system_error where the system refuses processes, pipes or ports. Not while this process has
// other threads.
int launch(const Launch& launch);

}  // namespace horo
