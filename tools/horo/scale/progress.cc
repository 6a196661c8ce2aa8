#include "tools/horo/scale/progress.h"

#include <unistd.h>

#include <iostream>

#include "elastic/texts.h"
#include "horo/base/say.h"
#include "tools/horo/scale/scale_text.h"

namespace horo::tools {
namespace {

constexpr const char* kClear = "\r\x1b[K";

std::int64_t ns_since(TimePoint time) {
  return std::chrono::nanoseconds(Clock::now() - time).count();
}

std::string rate_of(const RunData& run) {
  StepSums sums;
  for (const RankSums& rank : run.by_rank) add_sums(sums, rank.sums);
  const double seconds = static_cast<double>(sums.time) / 1e9 / run.ranks;
  const auto per_second = [seconds](std::int64_t count) {
    return rate_text(static_cast<std::int64_t>(1e3 * static_cast<double>(count) / seconds));
  };
  const bool has_samples = sums.samples.value_or(0) > 0;
  return (has_samples ? per_second(*sums.samples) + " samples/s" : per_second(run.steps) + " steps/s") + ", step " +
         step_text(sums.time / sums.rows);
}

}  // namespace

ScaleProgress::ScaleProgress(const ScalePlan& plan)
    : plan_(plan), runs_(plan.runs().size()), is_terminal_(::isatty(STDERR_FILENO) == 1), started_(Clock::now()) {}

void ScaleProgress::begin(const PlannedRun& run) {
  run_ = run;
  run_started_ = Clock::now();
  if (is_terminal_) std::cerr << kClear << name_text() << "starts" << std::flush;
}

void ScaleProgress::show(std::int64_t measured_ns) {
  if (!is_terminal_) return;
  const std::string now = measured_ns > 0 ? time_text(measured_ns) + " of " + time_text(plan_.run_ns) : "warms up";
  std::cerr << kClear << name_text() << now << left_text(measured_ns) << std::flush;
}

void ScaleProgress::end(const RunData& result) {
  std::cerr << (is_terminal_ ? kClear : "") << name_text();
  if (result.failure.empty()) {
    std::cerr << rate_of(result) << std::endl;
  } else {
    std::cerr << printable(result.failure) << std::endl;
  }
  ++done_;
}

void ScaleProgress::skip(const PlannedRun& run) {
  run_ = run;
  std::cerr << (is_terminal_ ? kClear : "") << name_text() << "left out" << std::endl;
  ++done_;
}

std::string ScaleProgress::name_text() const {
  return say("  run ", done_ + 1, " of ", runs_, ": ", run_.ranks, run_.ranks == 1 ? " rank" : " ranks", ", round ",
             run_.round, ": ");
}

// The runs that have ended tell how long a run takes, with the start of the script.
std::string ScaleProgress::left_text(std::int64_t measured_ns) const {
  const std::int64_t of_plan = plan_.run_ns + plan_.window().warm_up_ns();
  const std::int64_t before = std::chrono::nanoseconds(run_started_ - started_).count();
  const std::int64_t one = done_ > 0 ? before / static_cast<std::int64_t>(done_) : of_plan;
  const std::int64_t rest =
      measured_ns > 0 ? plan_.run_ns - measured_ns : std::max<std::int64_t>(one - ns_since(run_started_), 0);
  const std::int64_t left = rest + one * static_cast<std::int64_t>(runs_ - done_ - 1);
  return "   about " + time_text(left / 1'000'000'000 * 1'000'000'000) + " left";
}

}  // namespace horo::tools
