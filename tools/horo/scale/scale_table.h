// ScaleTable: efficiency by number of ranks, and the losses that add up to it. docs/scaling.md has the definitions.
// Times are integers of nanoseconds; only views round.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "horo/steps/straggler.h"
#include "tools/horo/scale/run_data.h"

namespace horo::tools {

enum class Loss : std::uint8_t { kSkew, kTransfer, kAgreement, kInput, kCompute, kOther };
inline constexpr std::size_t kLosses = 6;
inline constexpr std::array<std::string_view, kLosses> kLossNames{"skew",  "transfer",       "agreement",
                                                                  "input", "slower compute", "other"};
constexpr std::size_t index_of(Loss loss) {
  return static_cast<std::size_t>(loss);
}

// What efficiency counts: samples, if every row knows them; else the steps of each rank (weak scaling) or of the job.
enum class WorkUnit : std::uint8_t { kSamples, kRankSteps, kJobSteps };

// The mean step of one rank. Its bars add up to it; none: not known, and part of "between".
struct RankStep {
  std::int64_t rank = 0, step = 0;
  std::array<OptionalNs, kBars> bars{};
};

struct SizeResult {
  int ranks = 0;
  std::int64_t runs = 0, steps = 0;
  std::int64_t step = 0, ideal = 0;  // the mean step of a rank, and what it would be at 100 %
  std::int64_t median_step = 0;
  std::array<OptionalNs, kLosses> lost{};  // of the step; they add up to step - ideal; none: part of "other"
  std::int64_t efficiency_ppm = 0, low_ppm = 0, high_ppm = 0;
  std::int64_t rate_milli = 0;                 // thousandths of the unit of work, a second
  std::array<OptionalNs, kBars> bars{};        // of the step; they add up to it
  std::int64_t hidden_transfer = 0;            // of a step
  std::optional<std::int64_t> run_queue_ppm;   // of the step: ready to run, without a core
  std::int64_t long_steps = 0, long_time = 0;  // of rank 0, above four times the median
  std::vector<RankStep> by_rank;
  std::optional<Straggler> late;  // of the rows that are kept of each run
  Lateness lateness;              // of the last round
};

struct ScaleTable {
  WorkUnit unit = WorkUnit::kSamples;
  std::vector<SizeResult> sizes;  // those that were measured, by ranks; the first one is the base
};

// Runs with a failure do not count.
ScaleTable table_of(std::span<const RunData> runs, bool is_strong);

// The losses of a size against the base, in nanoseconds of its step. Exposed for tests.
struct LossSplit {
  std::int64_t step = 0, ideal = 0;
  std::array<OptionalNs, kLosses> lost{};
};
LossSplit split_losses(const StepSums& base, std::int64_t base_work, const StepSums& size, std::int64_t work);

}  // namespace horo::tools
