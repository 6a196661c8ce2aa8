// A linear fit of message times by size: the cost per message and the cost per byte. Pure.
#pragma once

#include <cstddef>
#include <vector>

namespace horo::tools {

struct Fit {
  double alpha_s = 0;  // per message
  double beta_s_per_byte = 0;
  double seconds(std::size_t bytes) const { return alpha_s + beta_s_per_byte * static_cast<double>(bytes); }
};

struct TimeOfSize {
  std::size_t bytes = 0;
  double seconds = 0;
};

// The least-squares fit of relative errors: 8 bytes count as much as 16 MiB. Expects at least two sizes.
Fit fit_of(const std::vector<TimeOfSize>& times);

}  // namespace horo::tools
