// RankStream: stdout or stderr of a rank. Forwards it to the user and to a file, and keeps its last lines.
#pragma once

#include <functional>
#include <string>
#include <string_view>

#include "tools/horo/machine/descriptor.h"
#include "tools/horo/run/output.h"
#include "tools/horo/run/output_tail.h"

namespace horo::tools {

class RankStream {
 public:
  struct Destinations {
    std::string prefix;  // of each line for the user
    StreamWriter* writer = nullptr;
    Descriptor file;                                       // receives the raw bytes; not open: none
    std::size_t most_bytes = LineSplitter::kMaxLineBytes;  // of a line
    std::function<void()> end;                             // called at the end of the pipe
    std::function<bool(std::string_view line)> take;       // true: the line is not for the user; empty: all are
  };
  RankStream(struct ev_loop* loop, Descriptor from, Destinations ways);

  // Of the lines that have not arrived yet.
  void set_prefix(const std::string& prefix);

  bool is_open() const { return from_.is_open(); }
  const OutputTail& tail() const { return tail_; }
  // Stops reading if the writer is full; resumes if it is not.
  void update_reading();
  // Reads the remaining bytes in the pipe and closes it.
  void close();

 private:
  bool read_some();
  void pass_line(std::string_view line);
  void write_file(std::string_view bytes);

  Descriptor from_;
  Destinations destinations_;
  IoWatch readable_;
  LineSplitter lines_;
  OutputTail tail_;
};

// Creates or empties rank.N.out or rank.N.err in an existing folder (horo/base/output_file.h). goes_on: writes behind
// what it has. Throws StartFailed, which names the file.
Descriptor make_rank_file(const std::string& folder, int rank, const char* ending, bool goes_on);

}  // namespace horo::tools
