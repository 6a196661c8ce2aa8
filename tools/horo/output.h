// LinePrefixer: puts the rank in front of every line of a program's output.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace horo {

// Bytes go in as they come; out come whole lines, each with its prefix. A carriage return ends a line too, as progress
// bars use it, but keeps its newline if one follows. A line over kMaxLineBytes is cut there and goes on in a new line.
class LinePrefixer {
 public:
  static constexpr std::size_t kMaxLineBytes = 64 << 10;

  explicit LinePrefixer(std::string prefix) : prefix_(std::move(prefix)) {}
  // Lines that these bytes completed.
  std::string feed(std::string_view bytes);
  // The last line if it had no end; a newline is added.
  std::string finish();

 private:
  void end_line(std::string& out);

  const std::string prefix_;
  std::string line_;  // not ended yet
};

// Writes all of it, waiting where it must. False: nobody reads any more.
bool write_all(int fd, std::string_view text);

}  // namespace horo
