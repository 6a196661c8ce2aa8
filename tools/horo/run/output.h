// What a job says: LineSplitter cuts a program's bytes into lines, Outlet passes them on.
#pragma once

#include <cstddef>
#include <functional>
#include <string>
#include <string_view>

#include "tools/horo/run/events.h"

namespace horo::tools {

// Bytes go in as they come; out come whole lines, each with its end. A carriage return ends a line too, as progress
// bars use it, but keeps its newline if one follows. A line over kMaxLineBytes is cut there and goes on in a new line.
class LineSplitter {
 public:
  static constexpr std::size_t kMaxLineBytes = 64 << 10;
  using OnLine = std::function<void(std::string_view)>;

  explicit LineSplitter(OnLine on_line) : on_line_(std::move(on_line)) {}
  void feed(std::string_view bytes);
  // The last line if it had no end; a newline is added.
  void finish();

 private:
  void end_line();

  const OnLine on_line_;
  std::string line_;  // not ended yet
};

// Writes to a descriptor that others may hold as well, and therefore stays blocking, without ever waiting for whoever
// reads it: what he does not take yet is kept. Whoever writes asks is_full() and stops reading where he reads.
class Outlet {
 public:
  static constexpr std::size_t kFullBytes = 1 << 20;

  // `on_change`: it broke; or, from the loop alone, it stopped being full or became empty.
  Outlet(struct ev_loop* loop, int fd, std::function<void()> on_change);
  void write(std::string_view text);
  bool is_full() const { return queue_.size() - done_ > kFullBytes; }
  bool is_empty() const { return queue_.size() == done_; }
  // 0, or the errno with which it broke; from then on everything is dropped.
  int error() const { return error_; }
  void abandon(int error);

 private:
  void on_writable();
  void write_some();

  const int fd_;
  const std::function<void()> on_change_;
  IoWatch writable_;
  std::string queue_;
  std::size_t done_ = 0;  // of the queue
  int error_ = 0;
};

}  // namespace horo::tools
