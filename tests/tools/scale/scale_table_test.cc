#include "tools/horo/scale/scale_table.h"

#include <gtest/gtest.h>

#include <numeric>
#include <random>

#include "tests/tools/scale/random_rows.h"
#include "tools/horo/scale/interval.h"

namespace horo::tools {
namespace {

template <std::size_t N>
std::int64_t sum_known(const std::array<OptionalNs, N>& values) {
  return std::accumulate(values.begin(), values.end(), std::int64_t{0},
                         [](std::int64_t sum, const OptionalNs& value) { return sum + value.value_or(0); });
}

std::int64_t lost(const SizeResult& size, Loss loss) {
  return size.lost[index_of(loss)].value_or(-1);
}

TEST(SplitLosses, TheyAddUpToWhatIsMissingForRandomRuns) {
  std::mt19937_64 random(1);
  for (int i = 0; i < 10'000; ++i) {
    const StepSums base = random_sums(random), size = random_sums(random);
    const LossSplit split = split_losses(base, *base.samples, size, *size.samples);
    ASSERT_EQ(sum_known(split.lost), split.step - split.ideal) << i;
    ASSERT_LE(std::abs(split.step * size.rows - size.time), size.rows);
    const double exact = static_cast<double>(base.time) / static_cast<double>(*base.samples) *
                         static_cast<double>(*size.samples) / static_cast<double>(size.rows);
    ASSERT_NEAR(static_cast<double>(split.ideal), exact, 1 + exact * 1e-9) << i;
  }
}

TEST(TableOf, ComparesRankSecondsForEachSample) {
  const std::vector<RunData> runs{run_of(1, 1, 50 * kMs), run_of(2, 1, 52 * kMs, 8 * kMs)};
  const ScaleTable table = table_of(runs, false);
  ASSERT_EQ(table.sizes.size(), 2u);
  EXPECT_EQ(table.unit, WorkUnit::kSamples);
  EXPECT_EQ(table.sizes[0].efficiency_ppm, 1'000'000);
  const SizeResult& two = table.sizes[1];
  EXPECT_EQ(two.step, 60 * kMs);
  EXPECT_EQ(two.ideal, 50 * kMs);
  EXPECT_EQ(two.efficiency_ppm, 833'333);
  EXPECT_EQ(two.rate_milli, 2'133'333);
  EXPECT_EQ(lost(two, Loss::kSkew), 8 * kMs);
  EXPECT_EQ(lost(two, Loss::kCompute), 2 * kMs);
  EXPECT_EQ(lost(two, Loss::kOther), 0);
  EXPECT_EQ(sum_known(two.bars), two.step);
}

TEST(TableOf, WithStrongScalingTheRanksDivideAStep) {
  std::vector<RunData> runs{run_of(1, 1, 60 * kMs), run_of(2, 1, 30 * kMs, 10 * kMs)};
  for (RunData& run : runs) {
    for (RankSums& rank : run.by_rank) rank.sums.samples = rank.sums.rows * 64 / run.ranks;
  }
  SizeResult two = table_of(runs, true).sizes[1];
  EXPECT_EQ(two.ideal, 30 * kMs);
  EXPECT_EQ(two.efficiency_ppm, 750'000);
  EXPECT_EQ(lost(two, Loss::kSkew), 10 * kMs);
  for (RunData& run : runs) {
    for (RankSums& rank : run.by_rank) rank.sums.samples.reset();
  }
  const ScaleTable table = table_of(runs, true);
  EXPECT_EQ(table.unit, WorkUnit::kJobSteps);
  EXPECT_EQ(table.sizes[1].efficiency_ppm, 750'000) << "steps tell the same as samples";
  EXPECT_EQ(table.sizes[1].low_ppm, 750'000);
  EXPECT_EQ(table.sizes[1].rate_milli, 25'000);
}

TEST(TableOf, WithoutSamplesItCountsSteps) {
  std::vector<RunData> runs{run_of(1, 1, 50 * kMs), run_of(2, 1, 50 * kMs, 50 * kMs)};
  runs[1].by_rank[1].sums.samples.reset();
  const ScaleTable table = table_of(runs, false);
  EXPECT_EQ(table.unit, WorkUnit::kRankSteps);
  EXPECT_EQ(table.sizes[1].efficiency_ppm, 500'000);
  EXPECT_EQ(table.sizes[0].rate_milli, 20'000);
  EXPECT_EQ(table.sizes[1].rate_milli, 20'000) << "half as many on each of two ranks";
}

TEST(TableOf, RunsThatFailedDoNotCount) {
  std::vector<RunData> runs{run_of(2, 1, 50 * kMs), run_of(4, 1, 60 * kMs), run_of(8, 1, 1)};
  runs[2].failure = "exit code 3";
  const ScaleTable table = table_of(runs, false);
  ASSERT_EQ(table.sizes.size(), 2u);
  EXPECT_EQ(table.sizes[0].ranks, 2) << "the smallest number that was measured is the base";
}

TEST(TableOf, WithoutMarksComputeIsTheTimeOutsideOfHoro) {
  std::vector<RunData> runs{run_of(1, 1, 50 * kMs), run_of(2, 1, 60 * kMs, 40 * kMs)};
  for (RunData& run : runs) {
    for (RankSums& rank : run.by_rank) {
      std::swap(rank.sums.bars[index_of(Bar::kForward)], rank.sums.bars[index_of(Bar::kBetween)]);
      for (std::size_t bar = 0; bar < index_of(Bar::kBetween); ++bar) rank.sums.is_known[bar] = false;
    }
  }
  const SizeResult two = table_of(runs, false).sizes[1];
  EXPECT_EQ(two.lost[index_of(Loss::kInput)], std::nullopt);
  EXPECT_EQ(lost(two, Loss::kCompute), 10 * kMs);
  EXPECT_EQ(two.bars[index_of(Bar::kForward)], std::nullopt);
  EXPECT_EQ(sum_known(two.bars), two.step);
}

TEST(EfficiencyInterval, IsTheSameForTheSameRoundsAndHoldsTheMean) {
  std::mt19937_64 random(3);
  std::vector<RoundBlocks> rounds(3);
  for (RoundBlocks& round : rounds) {
    for (int i = 0; i < 10; ++i) {
      round.base.push_back({10, 1'000 * kMs + up_to(random, 20 * kMs), 640});
      round.size.push_back({20, 2'200 * kMs + up_to(random, 40 * kMs), 1'280});
    }
  }
  const PpmInterval interval = efficiency_interval(rounds);
  EXPECT_EQ(efficiency_interval(rounds).low, interval.low);
  EXPECT_LT(interval.low, interval.high);
  EXPECT_LT(interval.low, 909'500);
  EXPECT_GT(interval.high, 908'500);
  EXPECT_LT(interval.high - interval.low, 10'000);
}

// A run of three ranks in which the last one is late.
RunData late_run(int round, std::int64_t late_compute) {
  std::vector<std::vector<StepRow>> rows(3);
  for (std::int64_t step = 1; step <= 50; ++step) {
    for (std::int64_t rank = 0; rank < 3; ++rank) {
      const bool is_late = rank == 2;
      StepRow row = row_of(rank, step, 50 * kMs + (is_late ? late_compute : 0), is_late ? 0 : 10 * kMs);
      row.bars[index_of(Bar::kTransfer)] = 70 * kMs - row.time;
      row.time = 70 * kMs;
      row.begin = round * kRoundNs + (step - 1) * row.time;
      if (!is_late) row.late = {{2, 10 * kMs}};
      rows[static_cast<std::size_t>(rank)].push_back(row);
    }
  }
  RunData run = measure_run(rows, StepWindow{10'000 * kMs});
  run.round = round;
  return run;
}

TEST(TableOf, NamesTheLateRankOfAllRounds) {
  const std::vector<RunData> runs{late_run(1, 10 * kMs), late_run(2, 10 * kMs)};
  const auto late = table_of(runs, false).sizes[0].late;
  ASSERT_TRUE(late);
  EXPECT_EQ(late->rank, 2);
  EXPECT_EQ(late->when, When::kAlways);
  EXPECT_EQ(late->steps, 1);
  EXPECT_EQ(late->share, 1);
  EXPECT_EQ(late->cause, Cause::kBar);
  EXPECT_EQ(late->bar, Bar::kForward);
  EXPECT_EQ(late->excess, std::chrono::milliseconds(10));
}

TEST(TableOf, NamesTheRankAndNoBarIfNoneCoversTheDelay) {
  const std::vector<RunData> runs{late_run(1, 7 * kMs)};
  const auto late = table_of(runs, false).sizes[0].late;
  ASSERT_TRUE(late);
  EXPECT_EQ(late->rank, 2);
  EXPECT_EQ(late->cause, Cause::kNotExplained);
}

TEST(TableOf, NamesNoRankWithoutSkew) {
  const std::vector<RunData> runs{run_of(1, 1, 50 * kMs), run_of(2, 1, 50 * kMs, kMs / 2)};
  EXPECT_FALSE(table_of(runs, false).sizes[1].late);
}

}  // namespace
}  // namespace horo::tools
