// The output of a job: LineSplitter splits a stream into lines, StreamWriter writes without blocking.
#pragma once

#include <cstddef>
#include <functional>
#include <string>
#include <string_view>

#include "tools/horo/run/events.h"

namespace horo::tools {

// Splits a stream of bytes into lines; each is passed on with its line end. A carriage return ends a line as well
// (progress bars); a newline after it belongs to the same line. A longer line than `most_bytes` is split.
class LineSplitter {
 public:
  static constexpr std::size_t kMaxLineBytes = 64 << 10;
  using OnLine = std::function<void(std::string_view)>;

  explicit LineSplitter(OnLine on_line, std::size_t most_bytes = kMaxLineBytes)
      : on_line_(std::move(on_line)), most_bytes_(most_bytes) {}
  void feed(std::string_view bytes);
  // Passes on an incomplete last line, with a newline.
  void finish();

 private:
  void end_line();

  const OnLine on_line_;
  const std::size_t most_bytes_;
  std::string line_;  // incomplete
};

// Writes to a descriptor without blocking. The descriptor itself stays in blocking mode, because other processes may
// share it. Data that the reader does not accept yet are queued. While is_full(), the caller must stop reading its
// source.
class StreamWriter {
 public:
  static constexpr std::size_t kFullBytes = 1 << 20;

  // `on_change` is called on a write error, and from the loop when the queue stops being full or becomes empty.
  StreamWriter(struct ev_loop* loop, int fd, std::function<void()> on_change);
  void write(std::string_view text);
  bool is_full() const { return queue_.size() - done_ > kFullBytes; }
  bool is_empty() const { return queue_.size() == done_; }
  // 0, or the errno of a failed write; after a failure all data are dropped.
  int error() const { return error_; }
  void abandon(int error);

 private:
  void on_writable();
  void write_some();

  const int fd_;
  const std::function<void()> on_change_;
  IoWatch writable_;
  std::string queue_;
  std::size_t done_ = 0;  // written bytes of the queue
  int error_ = 0;
};

}  // namespace horo::tools
