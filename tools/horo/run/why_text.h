// The text of `horo why`.
#pragma once

#include <string>

#include "tools/horo/run/job_waits.h"

namespace horo::tools {

// One line if no rank waits for another for a second or more, and each answers. Else a line for each wait, and where
// the ranks are that it names.
std::string why_text(const JobWaits& waits);
// Whether why_text() tells what the job waits for, or that it does not.
bool is_explained(const JobWaits& waits);

}  // namespace horo::tools
