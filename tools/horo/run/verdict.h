// The exit verdict: which rank of a failed job failed first, derived from the exit status and last output of each.
#pragma once

#include <string>
#include <vector>

#include "tools/horo/run/output_tail.h"

namespace horo::tools {

struct RankEnd {
  int rank = 0;
  int status = 0;               // of waitpid()
  int place = 0;                // in the order in which the ends were observed; the real order may differ
  bool was_terminated = false;  // it ended after the launcher's SIGTERM
  bool was_survived = false;    // an elastic job went on without it
  bool was_no_rank = false;     // it has never called init()
  bool was_joining = false;     // it was started later, and has never been a member with the state: it decides nothing
  OutputTail output, errors;
};

struct ExitVerdict {
  int code = 0;               // of the first failure: exit code, or 128 + signal
  std::string text;           // lines for the user; empty if no rank failed
  bool is_elsewhere = false;  // a rank of another host was lost first
};

// In a static job a rank that ended only because of another rank's end ranks last, even if its end was observed first.
// In this order:
// - the rank that most errors name as lost or as having left, unless it reported such a rank itself;
// - a rank that a signal ended, then a rank that failed without such an error; the earliest first;
// - a rank that failed with such an error.
// A rank that ended after the launcher's SIGTERM, or before it had joined, has not failed. The named rank may also run
// on another host, have exited with 0 while others needed it, or have not ended by itself; the code is then that of the
// first failure on this host. In an elastic job the first failure is the earliest one of ranks that the job has not
// survived: ranks get new numbers, so no error tells which rank was lost. A rank that failed since another was lost
// still ranks last.
ExitVerdict exit_verdict(const std::vector<RankEnd>& ends, const std::string& title, const std::string& host,
                         bool is_elastic = false);

// "exit code 3", "signal 9 (SIGKILL)".
std::string status_text(int status);
int code_of(int status);

}  // namespace horo::tools
