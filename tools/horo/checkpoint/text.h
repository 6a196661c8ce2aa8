// Sizes, and a line of progress, for `horo checkpoint`.
#pragma once

#include <cstdint>
#include <string>

#include "horo/base/time.h"

namespace horo::tools {

std::string bytes_text(std::uint64_t bytes);  // "1.25 GiB"

// A line on stderr that changes, if that is a terminal.
class CheckpointProgress {
 public:
  CheckpointProgress(std::string what, std::uint64_t total);
  ~CheckpointProgress();  // removes the line
  CheckpointProgress(const CheckpointProgress&) = delete;
  CheckpointProgress& operator=(const CheckpointProgress&) = delete;
  void add(std::uint64_t bytes);

 private:
  const std::string what_;
  const std::uint64_t total_;
  const bool is_terminal_;
  const TimePoint begin_;
  TimePoint shown_;
  std::uint64_t done_ = 0;
};

}  // namespace horo::tools
