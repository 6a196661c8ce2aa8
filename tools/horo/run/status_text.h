// The state of jobs as text for a terminal.
#pragma once

#include <string>
#include <vector>

#include "tools/horo/run/job_status.h"
#include "tools/horo/run/text_view.h"

namespace horo::tools {

std::string text_of(const JobStatus& status, const TextView& view = {});
// A table with a line for each job.
std::string list_of(const std::vector<JobStatus>& jobs);
std::string elapsed_text(double seconds);  // "7 s", "3 min 5 s", "2 h 4 min", "3 d 1 h"

}  // namespace horo::tools
