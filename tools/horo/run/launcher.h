// Runs a program on this host's ranks of a job, from start to end.
#pragma once

#include <cstddef>
#include <string>
#include <utility>
#include <vector>

namespace horo::tools {

enum class CoreBinding {
  kAuto,  // as kCore if there are at least as many cores as ranks, else as kNone
  kNone,
  kCore,  // each rank is bound to its own share of the cores
};

struct Launch {
  std::string title = "horo run";  // the program's name in messages
  std::vector<std::string> command;
  std::vector<int> ranks_by_host{1};  // of the world
  std::size_t host = 0;               // index of this host
  std::string addr;                   // host:port where rank 0 listens; empty (one host only): a free loopback port
  std::string key_file;               // empty (one host only): a new key
  std::vector<std::pair<std::string, std::string>> variables;  // for the ranks, beside this process's
  std::string cwd;                                             // empty: this process's
  std::string output_dir;                                      // for rank.N.out and rank.N.err; empty: none
  bool goes_on = false;              // what these files have stays: the job was started before
  double timeout_s = 0;              // of the job; 0: none
  int min_ranks = 0;                 // an elastic job goes on with this number of ranks; 0: the job is not elastic
  int restarts = 0;                  // elastic, one host: of a slot within 10 min; 0: no lost rank is replaced
  int max_ranks = 0;                 // elastic, one host: `horo resize` may start ranks up to this number
  double cool_down_s = 600;          // elastic, one host: so long a slot rests after its restarts
  int restarts_from_checkpoint = 0;  // one host: new starts of a job whose ranks have all ended, after a checkpoint
  double evict_after_s = 10;         // elastic: a rank that is stopped or does not answer for so long is evicted
  double park_timeout_s = 60;        // elastic: the job ends if too few ranks are left for so long
  double grace_s = 0;                // the ranks are ended so long after SIGTERM, their notice; 0: at once
  std::string rendezvous;            // elastic, several hosts: host:port of the rendezvous
  bool embeds_rendezvous = false;    // this process runs it
  CoreBinding binding = CoreBinding::kNone;
  bool is_part = false;       // of a job whose hosts another horo run has started: the key is in HORO_KEY_FD
  bool passes_input = false;  // this process's stdin is that of each rank (job_input.h); else theirs is empty
  bool prefixed = true;       // lines begin with "[rank] "
  bool verbose = false;
  double progress_s = 0;    // prints a line on the steps of the ranks each so many seconds; 0: none
  bool summarizes = false;  // prints at the end where the steps of the ranks went

  int ranks() const { return ranks_by_host[host]; }  // on this host
  int first_rank() const;
  int size() const;   // of the world
  int slots() const;  // for ranks of this host, those included that may be started later
};

// Starts this host's ranks and forwards their output. Blocks until all have ended. After the first failure the other
// ranks have 5 s to exit; then they get SIGTERM, and SIGKILL 3 s later. SIGINT, SIGTERM, SIGHUP and SIGQUIT are
// forwarded; a second signal kills the ranks. With grace_s the first SIGTERM is a notice (docs/elastic.md). A failed
// job ends with a block of text on stderr (verdict.h). No process of the job is left after the return, nor after this
// process has been killed. With restarts_from_checkpoint a job that has failed is started again, if it has published a
// checkpoint since its last start. Returns 0, or the exit code of the first rank that failed (128 + its signal if a
// signal ended it), 127 or 126 if the program cannot be started, 124 after the timeout. An elastic job goes on without
// ranks that fail, and returns the code of those that were left; 1 if they were too few (docs/protocol.md). Throws
// std::invalid_argument for invalid options, std::system_error if a process, pipe or port is not available. This
// process must have one thread only.
int launch(const Launch& launch);

// The word in the quoting of a shell.
std::string quoted_for_shell(const std::string& word);

// Prints the command, environment and cores of each rank of this host. Starts nothing. Throws as launch() does.
void print_plan(const Launch& launch);

}  // namespace horo::tools
