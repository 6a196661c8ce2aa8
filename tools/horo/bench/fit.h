// The line through times of messages by size: what a message costs by itself, and what each of its bytes costs. Pure.
#pragma once

#include <cstddef>
#include <vector>

namespace horo::tools {

struct Fit {
  double alpha_s = 0;  // of a message
  double beta_s_per_byte = 0;
  double seconds(std::size_t bytes) const { return alpha_s + beta_s_per_byte * static_cast<double>(bytes); }
};

struct TimeOfSize {
  std::size_t bytes = 0;
  double seconds = 0;
};

// The fit with the least relative errors, in their squares: 8 bytes count as much as 16 MiB. Two sizes at least.
Fit fit_of(const std::vector<TimeOfSize>& times);

}  // namespace horo::tools
