// OutputTail: the last lines of a program's output stream, and the exception in them that ended the program.
#pragma once

#include <cstddef>
#include <deque>
#include <optional>
#include <string>
#include <string_view>

namespace horo::tools {

class OutputTail {
 public:
  static constexpr std::size_t kMaxLines = 10;
  static constexpr std::size_t kMaxLineBytes = 400;

  // Adds one line with its line end. The next line replaces a line that ends in a carriage return.
  void add(std::string_view line);

  const std::deque<std::string>& lines() const { return lines_; }
  // "ValueError: no such file", from the last Python traceback or C++ terminate message; empty if more than kMaxLines
  // other lines follow it. The stack that pybind11 adds to an exception ("At:" and indented lines) does not count.
  const std::string& exception() const { return exception_; }
  // The same for the last exception about the end of another rank, even if it is the cause of a later exception: of a
  // type named PeerLost, or with ": PeerLost: " in its text, or a Mismatch because a rank has left ("rank 1 has left
  // ...").
  const std::string& loss() const { return loss_; }

 private:
  void scan_line(std::string_view line);
  void on_exception(std::string text);

  std::deque<std::string> lines_;
  bool is_transient_ = false;  // the last line ends in a carriage return
  bool in_traceback_ = false;
  bool in_stack_ = false;       // of pybind11
  std::string terminate_type_;  // of a C++ exception whose text is on the next line
  std::string exception_, loss_;
  std::size_t lines_since_ = 0;
};

// The lost rank in loss() of rank `by`: the first rank in the text that is not `by`. Empty if
// there is none.
std::optional<int> rank_lost(std::string_view text, int by);

}  // namespace horo::tools
