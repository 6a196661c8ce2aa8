#include "tools/horo/scale/scale_table.h"

#include <gtest/gtest.h>

#include <numeric>
#include <random>

#include "tests/tools/scale/random_rows.h"
#include "tools/horo/scale/interval.h"
#include "tools/horo/scale/late_rank.h"

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

std::vector<RankStep> means_of(const std::vector<RankSums>& sums) {
  std::vector<RankStep> means;
  for (const RankSums& rank : sums) {
    RankStep mean{rank.rank, rank.sums.time / rank.sums.rows, {}};
    for (std::size_t i = 0; i < kBars; ++i) mean.bars[i] = rank.sums.bars[i] / rank.sums.rows;
    means.push_back(mean);
  }
  return means;
}

// Ranks whose others wait for the last one.
std::vector<RankSums> late_ranks(std::int64_t late_compute) {
  std::vector<RankSums> ranks(3);
  for (std::size_t i = 0; i < ranks.size(); ++i) {
    const bool is_late = i == 2;
    ranks[i].rank = static_cast<std::int64_t>(i);
    const std::int64_t compute = 50 * kMs + (is_late ? late_compute : 0);
    add_row(ranks[i].sums, row_of(ranks[i].rank, 1, compute, is_late ? 0 : 10 * kMs));
  }
  ranks[2].caused = 20 * kMs;
  ranks[2].last = 1;
  return ranks;
}

TEST(LateOneOf, NamesTheBarThatCoversTheLateness) {
  const std::vector<RankSums> ranks = late_ranks(10 * kMs);
  const auto late = late_one_of(ranks, means_of(ranks));
  ASSERT_TRUE(late);
  EXPECT_EQ(late->rank, 2);
  EXPECT_TRUE(late->is_one);
  EXPECT_EQ(late->share_ppm, 1'000'000);
  EXPECT_EQ(late->bar, static_cast<std::int64_t>(index_of(Bar::kForward)));
  EXPECT_EQ(late->excess, 10 * kMs);
}

TEST(LateOneOf, NamesNoBarThatDoesNotCoverIt) {
  const std::vector<RankSums> ranks = late_ranks(7 * kMs);
  EXPECT_EQ(late_one_of(ranks, means_of(ranks))->bar, std::nullopt);
}

TEST(LateOneOf, IsNoneWithoutSkew) {
  std::vector<RankSums> ranks = late_ranks(10 * kMs);
  for (RankSums& rank : ranks) rank.sums.bars[index_of(Bar::kSkew)] = kMs / 10;
  EXPECT_FALSE(late_one_of(ranks, means_of(ranks)));
}

}  // namespace
}  // namespace horo::tools
