// LastWords: the end of what a program said, and the exception in it, if that is what ended it.
#pragma once

#include <cstddef>
#include <deque>
#include <optional>
#include <string>
#include <string_view>

namespace horo::tools {

class LastWords {
 public:
  static constexpr std::size_t kMaxLines = 10;
  static constexpr std::size_t kMaxLineBytes = 400;

  // One line with its end. A line that a carriage return ends is replaced by the next.
  void add(std::string_view line);

  const std::deque<std::string>& lines() const { return lines_; }
  // "ValueError: no such file", from the last Python traceback or C++ terminate message; empty if more than kMaxLines
  // other lines came after it.
  const std::string& exception() const { return exception_; }
  // The same of the last one called PeerLost, also where it is the cause of another one.
  const std::string& peer_lost() const { return peer_lost_; }

 private:
  void look_for_exception(const std::string& line);
  void on_exception(std::string text);

  std::deque<std::string> lines_;
  bool is_transient_ = false;  // the last line, that is
  bool in_traceback_ = false;
  std::string terminate_type_;  // of a C++ exception whose text comes with the next line
  std::string exception_, peer_lost_;
  std::size_t lines_since_ = 0;
};

// The rank that a PeerLost's text says was lost, as heard by rank `by`: the first one named that is another. None if
// the text names nobody else.
std::optional<int> rank_lost(std::string_view text, int by);

}  // namespace horo::tools
