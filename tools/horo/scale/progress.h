// The progress of `horo scale run` on stderr: one line that changes on a terminal, else one line for each run.
#pragma once

#include <cstdint>
#include <string>

#include "horo/base/time.h"
#include "tools/horo/scale/run_data.h"
#include "tools/horo/scale/scale_plan.h"

namespace horo::tools {

class ScaleProgress {
 public:
  explicit ScaleProgress(const ScalePlan& plan);

  void begin(const PlannedRun& run);
  void show(std::int64_t measured_ns);
  void end(const RunData& result);
  // For the rest of the runs, one more failed and is left out.
  void skip(const PlannedRun& run);

 private:
  std::string name_text() const;
  std::string left_text(std::int64_t measured_ns) const;

  const ScalePlan& plan_;
  const std::size_t runs_;
  const bool is_terminal_;
  const TimePoint started_;
  std::size_t done_ = 0;
  PlannedRun run_;
  TimePoint run_started_;
};

}  // namespace horo::tools
