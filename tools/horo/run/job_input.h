// JobInput: the standard input of `horo run` for its ranks. Every rank gets all of it, as each is the same program.
#pragma once

#include <cstddef>
#include <functional>
#include <list>
#include <string>
#include <utility>

#include "tools/horo/machine/descriptor.h"
#include "tools/horo/run/events.h"

namespace horo::tools {

class JobInput {
 public:
  struct Limits {
    std::size_t kept_bytes = 256 << 20;  // so far ahead of the slowest rank the input of a stream is read
    double begin_s = 30;                 // so long a rank that is so far behind, and has read nothing, is waited for
  };
  struct Orders {
    std::function<void(const std::string&)> say;
    std::function<void(const std::string&)> fail;  // a rank would take a part of the input for the whole
  };

  // `fd` stays open. A file is opened anew for each rank, so the ranks read it at their own pace, and the position of
  // `fd` does not move. A pipe or a socket is read to its end and copied. A terminal, or a descriptor that is not
  // readable, is an empty input: its user talks to one process.
  JobInput(struct ev_loop* loop, int fd, Orders orders, Limits limits);
  JobInput(struct ev_loop* loop, int fd, Orders orders) : JobInput(loop, fd, std::move(orders), Limits()) {}

  // The stdin of one more rank, for start(). Not open: it is empty.
  Descriptor add_rank(int rank);

 private:
  enum class Kind { kNone, kFile, kStream };
  struct Reader {
    Reader(JobInput& input, int rank, Descriptor to);
    bool is_open() const { return to.is_open(); }
    bool is_served() const { return is_open() && !is_given_up; }
    bool has_begun() const;
    void close();

    int rank;
    Descriptor to;
    std::size_t done = 0;       // bytes of the input since its start
    std::size_t done_then = 0;  // when patience_ ended
    bool is_told = false;       // that others wait for it
    bool is_given_up = false;   // it gets no more, and its pipe stays open: an end of it would be one of the input
    IoWatch writable;
  };

  static Kind kind_of(int fd);
  void read_some();
  void write_some(Reader& reader);
  void on_writable(Reader& reader);
  void on_patience();
  bool is_behind(const Reader& reader) const;
  void update();
  std::size_t end() const { return begin_ + kept_.size(); }

  struct ev_loop* const loop_;
  const int fd_;
  const Orders orders_;
  const Limits limits_;
  const Kind kind_;
  Descriptor own_;  // of a pipe, opened anew to be non-blocking
  IoWatch readable_;
  PatientTimer patience_;  // with ranks that are behind
  std::list<Reader> readers_;
  std::string kept_;  // from the position begin_
  std::size_t begin_ = 0;
  bool is_at_end_ = false, is_failed_ = false;
};

// Whether a file or a pipe at the descriptor has bytes that a program could read now. A terminal counts as empty.
bool has_input(int fd);

}  // namespace horo::tools
