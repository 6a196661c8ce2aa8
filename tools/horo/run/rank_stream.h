// RankStream: one of the two streams of a rank, on its way to the user, to a file, and into its last words.
#pragma once

#include <functional>
#include <string>
#include <string_view>

#include "tools/horo/machine/descriptor.h"
#include "tools/horo/run/last_words.h"
#include "tools/horo/run/output.h"

namespace horo::tools {

class RankStream {
 public:
  struct Ways {
    std::string prefix;  // of every line to the user
    Outlet* outlet = nullptr;
    Descriptor file;            // gets the bytes as they come; not open: none
    std::function<void()> end;  // the pipe came to its end
  };
  RankStream(struct ev_loop* loop, Descriptor from, Ways ways);

  bool is_open() const { return from_.is_open(); }
  const LastWords& words() const { return words_; }
  // Stops reading while the user's side is full, and goes on when it is not.
  void follow_outlet();
  // Takes what is in the pipe at this moment and closes it.
  void close();

 private:
  bool read_some();
  void pass_line(std::string_view line);
  void write_file(std::string_view bytes);

  Descriptor from_;
  Ways ways_;
  IoWatch readable_;
  LineSplitter lines_;
  LastWords words_;
};

// rank.N.out or rank.N.err in a folder that is there. Throws std::system_error naming the file.
Descriptor make_rank_file(const std::string& folder, int rank, const char* ending);

}  // namespace horo::tools
