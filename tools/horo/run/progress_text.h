// The line of `horo run --progress`.
#pragma once

#include <string>

#include "tools/horo/run/job_status.h"

namespace horo::tools {

// "step 1,200: 8.1 steps/s, 518 samples/s, 4 ranks, checkpoint of step 1,150". Means over the last seconds; the step is
// that of the rank that has ended the most, and samples are those of all members.
std::string progress_text(const JobStatus& status);

}  // namespace horo::tools
