// The steps of ranks as text for a terminal: where the time of a step went, and which rank the others wait for.
#pragma once

#include <string>

#include "horo/steps/step_board.h"
#include "horo/steps/straggler.h"
#include "tools/horo/run/job_status.h"
#include "tools/horo/run/text_view.h"

namespace horo::tools {

// Means over all steps of the sums.
StepFigures figures_of(const BoardSums& sums);

// A table with a line for each member that has figures, its legend, and the sentence on a late rank. Empty: none has.
std::string steps_text(const JobStatus& status, const TextView& view = {});
// For the end of a job: the same, with a first line on the whole job.
std::string summary_text(const JobStatus& status);
// "the others wait for rank 2, ...": a sentence.
std::string straggler_text(const Straggler& straggler);
// The parts of a step in `width` letters.
std::string letters_of(const StepFigures& figures, std::size_t width);

}  // namespace horo::tools
