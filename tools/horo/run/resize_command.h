// `horo resize`: tells a running job of this user on this host to have more ranks.
#pragma once

#include <optional>

namespace horo::tools {

struct ResizeOptions {
  int ranks = 0;
  std::optional<int> job;  // the guard's process, or that of `horo run`; none: the only job
};

// Prints to stdout what the job does. Blocks for at most some seconds. Returns the exit code: 0, or 1 if there is no
// such job, it does not answer or refuses.
int resize(const ResizeOptions& options);

}  // namespace horo::tools
