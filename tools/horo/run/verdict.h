// The verdict: which rank of a failed job failed first, from how each ended and what it said.
#pragma once

#include <string>
#include <vector>

#include "tools/horo/run/last_words.h"

namespace horo::tools {

struct RankEnd {
  int rank = 0;
  int status = 0;         // as waitpid() gives it
  int place = 0;          // in the order in which the ends were seen, which is not that in which they came
  bool was_told = false;  // it ended after the launcher had told it to
  LastWords output, errors;
};

struct ExitVerdict {
  int code = 0;      // the first failure's: exit code, or 128 + signal
  std::string text;  // lines for the user; empty if nobody failed
};

// Who ended only because others did comes last, however early the end was seen. In this order:
// - the rank that most of the ranks' PeerLost errors name, unless it lost somebody itself;
// - a rank that a signal ended, then one that failed for another reason than a PeerLost, the earliest first;
// - a rank that failed with PeerLost.
// A rank that was told to end has not failed. Blamed may also be a rank of another host, one that ended cleanly while
// it was still needed, or one that did not end by itself: the code is then that of the first failure here.
ExitVerdict judge(const std::vector<RankEnd>& ends, const std::string& title, const std::string& host);

// "exit code 3", "signal 9 (SIGKILL)".
std::string say_status(int status);
int code_of(int status);

}  // namespace horo::tools
