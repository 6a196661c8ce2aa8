#include "tools/horo/run/progress_text.h"

#include <algorithm>
#include <cstdint>

#include "tools/horo/machine/facts.h"
#include "tools/horo/run/text_table.h"

namespace horo::tools {
namespace {

constexpr double kStalledSeconds = 5;  // without a step; at least three usual steps

}  // namespace

std::string progress_text(const JobStatus& status) {
  std::int64_t steps = 0, slowest = 0;
  double samples = 0, age_s = 0;
  int present = 0;
  for (const MemberStatus& member : status.members) {
    present += member.rank ? 1 : 0;
    if (!member.rank || !member.steps) continue;
    age_s = steps == 0 ? member.steps->age_s : std::min(age_s, member.steps->age_s);
    steps = std::max(steps, member.steps->steps);
    slowest = std::max(slowest, member.steps->step);
    samples += member.steps->samples_per_s.value_or(0);
  }
  const double step_s = static_cast<double>(slowest) / 1e9;
  std::string text = "no step has ended yet";
  if (steps > 0) {
    text = "step " + grouped(static_cast<double>(steps)) + ": ";
    if (age_s > std::max(kStalledSeconds, 3 * step_s)) {
      text += "no step for " + fixed(age_s, 0) + " s";
    } else {
      text += fixed(step_s > 0 ? 1 / step_s : 0, step_s > 0.1 ? 2 : 1) + " steps/s";
      if (samples > 0) text += ", " + grouped(samples) + " samples/s";
    }
  }
  if (!status.min_ranks) present = status.size;  // ranks of other hosts may be no members
  text += ", " + std::to_string(present) + (present == 1 ? " rank" : " ranks");
  if (status.checkpoint) text += ", checkpoint of step " + grouped(static_cast<double>(*status.checkpoint));
  return text;
}

}  // namespace horo::tools
