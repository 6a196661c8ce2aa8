// The files of HORO_STEPS of one run: rank 0's while it grows, and all of them at the end.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "tools/horo/machine/descriptor.h"
#include "tools/horo/scale/step_row.h"

namespace horo::tools {

// Reads what a file has got since the last look. It may not exist yet.
class GrowingSteps {
 public:
  explicit GrowingSteps(std::string path) : path_(std::move(path)) {}
  // Calls it with every new row. A line that is not whole yet is left for the next look.
  void look(const std::function<void(const StepRow&)>& on_row);

 private:
  const std::string path_;
  Descriptor file_;
  std::string rest_;  // of a line
};

// The number of the last step in a file; 0: there is none yet. Reads its end alone.
std::int64_t last_step_in(const std::string& path);

struct StepsOfRun {
  std::vector<std::vector<StepRow>> by_rank;
  std::int64_t left_out = 0;
  std::string error;  // of the first line that is wrong; the last one of a file may be cut
};

StepsOfRun read_steps(const std::string& folder, int ranks);

}  // namespace horo::tools
