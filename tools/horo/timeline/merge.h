// `horo timeline merge`: joins the timelines of the ranks of a job in one file, with the clocks of their hosts aligned,
// and says which rank the others waited for.
#pragma once

#include <iosfwd>
#include <string>
#include <vector>

namespace horo::tools {

struct MergeOptions {
  std::vector<std::string> files;  // of ranks, in any order
  std::string output;
  bool json = false;  // the summary
};

// Writes the joined file, and a summary to `out`: by rank the steps, how long they took, how much of that were waits,
// and of how many collectives the rank was the last one, and by how long (median). The end of a file may be missing (a
// rank that was killed). Returns 0. Throws std::invalid_argument (a file that is no timeline, two files of one rank,
// files of different jobs) or std::runtime_error (the output cannot be written).
int merge_timelines(const MergeOptions& options, std::ostream& out);

}  // namespace horo::tools
