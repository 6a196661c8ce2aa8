// `horo status`: shows the running jobs of this user.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

namespace horo::tools {

struct StatusOptions {
  std::optional<int> job;  // the guard's process, or that of `horo run`; none: all jobs
  bool json = false;
  std::optional<double> watch_s;  // seconds between two views, until the jobs have ended; none: one view
  bool is_top = false;            // of `horo top`
};

// Prints to stdout. Blocks for at most some seconds, or with watch_s until the jobs have ended. Returns the exit code:
// 0, or 1 if there is no such job or it does not answer.
int status(const StatusOptions& options);
// The same with few events, each second.
int top(StatusOptions options);

}  // namespace horo::tools
