// Rows of steps for tests: random ones, and ones of known times.
#pragma once

#include <random>
#include <vector>

#include "tools/horo/scale/run_data.h"

namespace horo::tools {

constexpr std::int64_t kMs = 1'000'000;
constexpr std::int64_t kRoundNs = 3'600'000 * kMs;  // between the begins of rounds

inline StepRow row_of(std::int64_t rank, std::int64_t step, std::int64_t compute, std::int64_t skew = 0) {
  StepRow row;
  row.rank = rank;
  row.step = step;
  row.bars.fill(0);
  row.bars[index_of(Bar::kForward)] = compute;
  row.bars[index_of(Bar::kSkew)] = skew;
  row.time = compute + skew;
  row.begin = (step - 1) * row.time;
  row.samples = 64;
  row.run_queue = 0;
  return row;
}

// Steps of one length on all ranks.
inline std::vector<std::vector<StepRow>> rows_of(int ranks, int steps, std::int64_t compute, std::int64_t skew = 0) {
  std::vector<std::vector<StepRow>> rows(static_cast<std::size_t>(ranks));
  for (int rank = 0; rank < ranks; ++rank) {
    for (int step = 1; step <= steps; ++step) {
      rows[static_cast<std::size_t>(rank)].push_back(row_of(rank, step, compute, skew));
    }
  }
  return rows;
}

inline RunData run_of(int ranks, int round, std::int64_t compute, std::int64_t skew = 0) {
  std::vector<std::vector<StepRow>> rows = rows_of(ranks, 50, compute, skew);
  for (std::vector<StepRow>& of_rank : rows) {
    for (StepRow& row : of_rank) row.begin += round * kRoundNs;
  }
  RunData run = measure_run(rows, StepWindow{1'000'000'000});
  run.ranks = ranks;
  run.round = round;
  return run;
}

inline std::int64_t up_to(std::mt19937_64& random, std::int64_t most) {
  return static_cast<std::int64_t>(random() % static_cast<std::uint64_t>(most + 1));
}

// Bars of any size, some not known.
inline StepSums random_sums(std::mt19937_64& random) {
  StepSums sums;
  sums.rows = 1 + up_to(random, 100'000);
  sums.samples = 1 + up_to(random, 1'000'000'000);
  const std::int64_t most = std::int64_t{1} << up_to(random, 48);
  for (std::size_t i = 0; i < kBars; ++i) {
    sums.bars[i] = up_to(random, most);
    sums.is_known[i] = i == index_of(Bar::kBetween) || up_to(random, 4) > 0;
    sums.time += sums.bars[i];
  }
  sums.time += 1;
  sums.bars[0] += 1;
  return sums;
}

}  // namespace horo::tools
