// JobInput: the standard input of `horo run` for its ranks. Every rank gets all of it, as each is the same program.
#pragma once

#include <cstddef>
#include <functional>
#include <list>
#include <string>

#include "tools/horo/machine/descriptor.h"
#include "tools/horo/run/events.h"

namespace horo::tools {

class JobInput {
 public:
  // What is not read by the slowest rank is kept in memory up to this size; then that rank gets no more.
  static constexpr std::size_t kMostKeptBytes = 256 << 20;

  // `fd` stays open. A file is opened anew for each rank, so the ranks read it at their own pace, and the position of
  // `fd` does not move. A pipe or a socket is read to its end and copied. A terminal, or a descriptor that is not
  // readable, is an empty input: its user talks to one process. `say` gets a line about a rank that gets no more.
  JobInput(struct ev_loop* loop, int fd, std::function<void(const std::string&)> say);

  // The stdin of one more rank, for start(). Not open: it is empty.
  Descriptor add_rank(int rank);

 private:
  enum class Kind { kNone, kFile, kStream };
  struct Reader {
    Reader(JobInput& input, int rank, Descriptor to);
    bool is_open() const { return to.is_open(); }
    void close();

    int rank;
    Descriptor to;
    std::size_t done = 0;  // bytes of the input since its start
    IoWatch writable;
  };

  static Kind kind_of(int fd);
  void read_some();
  void write_some(Reader& reader);
  void update();
  std::size_t end() const { return begin_ + kept_.size(); }

  struct ev_loop* const loop_;
  const int fd_;
  const std::function<void(const std::string&)> say_;
  const Kind kind_;
  Descriptor own_;  // of a pipe, opened anew to be non-blocking
  IoWatch readable_;
  std::list<Reader> readers_;
  std::string kept_;  // from the position begin_
  std::size_t begin_ = 0;
  bool is_at_end_ = false;
};

// Whether a file or a pipe at the descriptor has bytes that a program could read now. A terminal counts as empty.
bool has_input(int fd);

}  // namespace horo::tools
