// `horo why`: tells which rank of a running job waits for which, and where both are.
#pragma once

#include <optional>

namespace horo::tools {

struct WhyOptions {
  std::optional<int> job;  // the guard's process, or that of `horo run`; none: the only job
  bool json = false;
};

// Prints to stdout. Blocks for some seconds at most. Returns the exit code: 0, or 1 if there is no such job or no
// answer.
int why(const WhyOptions& options);

}  // namespace horo::tools
