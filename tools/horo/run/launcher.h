// Running a program on several ranks, those of this host, from their start to their end.
#pragma once

#include <cstddef>
#include <string>
#include <utility>
#include <vector>

namespace horo::tools {

enum class Binding {
  kAuto,  // to cores if there are as many as ranks
  kNone,
  kCore,  // every rank to a share of its own
};

struct Launch {
  std::string title = "horo run";  // who speaks in messages
  std::vector<std::string> command;
  std::vector<int> ranks_by_host{1};  // of the whole world
  std::size_t host = 0;               // which of these this is
  std::string addr;                   // host:port where rank 0 listens; empty, of one host: a free port of loopback
  std::string key_file;               // empty, of one host: a key of this job's own
  std::vector<std::pair<std::string, std::string>> variables;  // for the ranks, on top of this process's
  std::string cwd;                                             // empty: this process's
  std::string output_dir;  // rank.N.out and rank.N.err are written there too; empty: none
  double timeout_s = 0;    // of the whole job; 0: none
  Binding binding = Binding::kNone;
  bool prefixed = true;  // "[rank] " in front of every line
  bool verbose = false;

  int ranks() const { return ranks_by_host[host]; }  // here
  int first_rank() const;
  int size() const;  // of the world
};

// Starts this host's ranks and passes on what they say. When one fails, the others have 5 s to end by themselves, then
// they are told (SIGTERM), 3 s later killed. SIGINT, SIGTERM, SIGHUP and SIGQUIT are passed on; a second one kills. In
// the end stderr gets one block on a failure (verdict.h). No process is left when it returns, nor when it is killed: 0,
// or how the first rank that failed ended: its exit code, 128 + its signal, 127 or 126 if there is no such program; 124
// if the time was over. Throws std::invalid_argument for what cannot be as asked, std::system_error where the system
// refuses processes, pipes or ports. Not while this process has other threads.
int launch(const Launch& launch);

// Prints the command, environment and cores of every rank of this host, and starts nothing. Throws as launch() does.
void print_plan(const Launch& launch);

}  // namespace horo::tools
