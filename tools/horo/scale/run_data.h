// RunData: what is kept of one run of the script with one number of ranks. Times are integers of nanoseconds.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "tools/horo/scale/step_row.h"

namespace horo::tools {

// Sums over rows: a row is one step of one rank.
struct StepSums {
  std::int64_t rows = 0, time = 0;
  std::int64_t timed_rows = 0;              // StepRow::is_timed; of add_row() alone
  std::optional<std::int64_t> samples = 0;  // none: at least one row does not know them
  std::array<std::int64_t, kBars> bars{};
  std::array<bool, kBars> is_known{};  // in every timed row, or in every row where none is timed
  std::int64_t hidden_transfer = 0;
  std::optional<std::int64_t> run_queue;  // of the rows that have it, which is that of all before them, too
};

struct RankSums {
  std::int64_t rank = 0;
  StepSums sums;
  std::int64_t caused = 0;  // skew of the other ranks for which this rank was last
};

// Consecutive steps of all ranks. Resampling draws them.
struct StepBlock {
  std::int64_t rows = 0, time = 0, samples = 0;
};

// By step and rank, for the picture of late ranks.
struct Lateness {
  std::int64_t first_step = 0;
  std::vector<std::vector<std::int64_t>> caused;  // [rank][step]
};

struct RunData {
  int ranks = 0, round = 0;
  std::string failure;  // why there are no figures; empty: there are
  std::int64_t steps = 0, warm_up_steps = 0;
  std::int64_t left_out = 0;                                     // lines that the ranks have left out
  std::int64_t median_step = 0;                                  // of rank 0
  std::int64_t long_steps = 0;                                   // of rank 0, above four times the median
  std::int64_t long_time = 0;                                    // their sum
  std::optional<std::int64_t> samples_of_rank, samples_of_step;  // of a step; medians
  std::vector<RankSums> by_rank;
  std::vector<StepBlock> blocks;
  Lateness lateness;
  std::vector<StepRow> rows;  // the last ones, of all ranks
};

// Which steps count: those behind the warm-up, of so much time. The warm-up lasts for at least warm_up_ns and, unless
// they take longer than the window itself, for kWarmUpSteps.
struct StepWindow {
  static constexpr std::int64_t kWarmUpSteps = 10;
  static constexpr std::int64_t kLeastSteps = 5;  // in the window

  std::int64_t length_ns = 0;

  std::int64_t warm_up_ns() const { return length_ns / 10; }
  // Whether a step belongs to the warm-up. `index`: from 0; `elapsed_ns`: from the begin of the first step to its own.
  bool is_warm_up(std::int64_t index, std::int64_t elapsed_ns) const;
};

// The steps of all ranks that count: those that every rank has written. By rank, each in the order of its steps.
// Without enough of them the result has a failure.
RunData measure_run(std::span<const std::vector<StepRow>> by_rank, const StepWindow& window);

void add_row(StepSums& sums, const StepRow& row);
void add_sums(StepSums& sums, const StepSums& more);

}  // namespace horo::tools
