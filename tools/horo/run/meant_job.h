// The job that a command line means, which names it by a number, or none.
#pragma once

#include <sys/types.h>

#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

namespace horo::tools {

// No job is meant, or several are.
class NoJob : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// The guard's process. job: it, or the process of `horo run`; none: the only job. place: of the number on the command
// line, for the error: "after the number of ranks". Throws NoJob. Blocks for some seconds at most.
pid_t meant_job(const std::vector<std::string>& folders, std::optional<int> job, const std::string& place);

}  // namespace horo::tools
