#include "tools/horo/scale/run_data.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/tools/scale/random_rows.h"

namespace horo::tools {
namespace {

using testing::HasSubstr;

constexpr std::int64_t kSecond = 1'000 * kMs;

TEST(StepWindow, TheWarmUpHasTenStepsAndATenthOfTheTime) {
  const StepWindow window{10 * kSecond};
  EXPECT_TRUE(window.is_warm_up(0, 0));
  EXPECT_TRUE(window.is_warm_up(100, kSecond - 1));
  EXPECT_FALSE(window.is_warm_up(100, kSecond));
  EXPECT_TRUE(window.is_warm_up(9, 5 * kSecond));
  EXPECT_FALSE(window.is_warm_up(10, 5 * kSecond));
  EXPECT_FALSE(window.is_warm_up(3, 10 * kSecond)) << "long steps have a warm-up of the window's length";
}

TEST(MeasureRun, CountsTheStepsBehindTheWarmUp) {
  const RunData run = measure_run(rows_of(2, 200, 10 * kMs), StepWindow{kSecond});
  EXPECT_EQ(run.failure, "");
  EXPECT_EQ(run.warm_up_steps, 10);
  EXPECT_EQ(run.steps, 100);
  EXPECT_EQ(run.by_rank[1].sums.rows, 100);
  EXPECT_EQ(run.by_rank[1].sums.time, 1'000 * kMs);
  EXPECT_EQ(run.samples_of_rank, 64);
  EXPECT_EQ(run.samples_of_step, 128);
}

TEST(MeasureRun, AShortRunCountsIfItHasSomeSteps) {
  EXPECT_EQ(measure_run(rows_of(2, 15, 10 * kMs), StepWindow{kSecond}).failure, "");
  EXPECT_THAT(measure_run(rows_of(2, 14, 10 * kMs), StepWindow{kSecond}).failure,
              HasSubstr("4 steps behind a warm-up of 10 steps"));
  EXPECT_NE(measure_run(rows_of(2, 0, 10 * kMs), StepWindow{kSecond}).failure, "");
}

TEST(MeasureRun, StepsThatARankHasNotWrittenDoNotCount) {
  auto rows = rows_of(3, 50, 10 * kMs);
  rows[1].erase(rows[1].begin() + 20);
  rows[2].resize(40);
  rows[2].push_back(rows[2].back());
  const RunData run = measure_run(rows, StepWindow{kSecond});
  EXPECT_EQ(run.steps, 29);
  for (const RankSums& rank : run.by_rank) EXPECT_EQ(rank.sums.rows, 29);
}

TEST(MeasureRun, BlocksAddUpToTheRun) {
  const RunData run = measure_run(rows_of(3, 73, 7 * kMs), StepWindow{kSecond});
  std::int64_t rows = 0, time = 0, samples = 0;
  for (const StepBlock& block : run.blocks) {
    rows += block.rows;
    time += block.time;
    samples += block.samples;
  }
  EXPECT_EQ(rows, 3 * run.steps);
  EXPECT_EQ(time, 3 * run.steps * 7 * kMs);
  EXPECT_EQ(samples, 64 * rows);
}

TEST(MeasureRun, ABarThatOneRowDoesNotKnowIsNotKnown) {
  auto rows = rows_of(2, 50, 10 * kMs);
  rows[0][30].bars[index_of(Bar::kInput)].reset();
  rows[1][30].samples.reset();
  const RunData run = measure_run(rows, StepWindow{kSecond});
  EXPECT_FALSE(run.by_rank[0].sums.is_known[index_of(Bar::kInput)]);
  EXPECT_TRUE(run.by_rank[1].sums.is_known[index_of(Bar::kInput)]);
  EXPECT_EQ(run.by_rank[1].sums.samples, std::nullopt);
  EXPECT_EQ(run.samples_of_rank, std::nullopt);
}

TEST(MeasureRun, AStepWithoutTheTimesOfItsDeviceDoesNotHideThoseOfTheOthers) {
  auto rows = rows_of(2, 50, 10 * kMs);
  rows[0][30].bars[index_of(Bar::kBackward)].reset();
  rows[0][30].is_timed = false;
  for (StepRow& row : rows[1]) {
    row.bars[index_of(Bar::kBackward)].reset();
    row.is_timed = false;
  }
  const RunData run = measure_run(rows, StepWindow{kSecond});
  EXPECT_TRUE(run.by_rank[0].sums.is_known[index_of(Bar::kBackward)]);
  EXPECT_FALSE(run.by_rank[1].sums.is_known[index_of(Bar::kBackward)]);
}

TEST(MeasureRun, TheTimeWithoutACoreIsThatOfTheRowsThatKnowIt) {
  auto rows = rows_of(2, 50, 10 * kMs);
  for (std::size_t i = 0; i < 50; ++i) {
    rows[0][i].run_queue = i % 3 == 0 ? std::optional<std::int64_t>(3 * kMs) : std::nullopt;
    rows[1][i].run_queue.reset();
  }
  const RunData run = measure_run(rows, StepWindow{kSecond});
  EXPECT_EQ(run.by_rank[0].sums.run_queue, 39 * kMs) << "steps 11 to 50";
  EXPECT_EQ(run.by_rank[1].sums.run_queue, std::nullopt);
  StepSums both;
  for (const RankSums& rank : run.by_rank) add_sums(both, rank.sums);
  EXPECT_EQ(both.run_queue, 39 * kMs);
}

TEST(MeasureRun, CountsWhatEachRankMakesTheOthersWait) {
  auto rows = rows_of(3, 50, 10 * kMs);
  for (const std::size_t waiting : {0, 1}) {
    for (StepRow& row : rows[waiting]) {
      row.bars[index_of(Bar::kSkew)] = 2 * kMs;
      row.time += 2 * kMs;
      row.late = {{2, 2 * kMs}, {77, 5}};
    }
  }
  const RunData run = measure_run(rows, StepWindow{kSecond});
  EXPECT_EQ(run.by_rank[2].caused, run.steps * 4 * kMs);
  EXPECT_EQ(run.by_rank[0].caused, 0);
  EXPECT_EQ(run.lateness.caused[2].back(), 4 * kMs);
}

TEST(MeasureRun, LongStepsAreToldApart) {
  auto rows = rows_of(1, 50, 10 * kMs);
  rows[0][40].bars[index_of(Bar::kForward)] = 50 * kMs;
  rows[0][40].time = 50 * kMs;
  const RunData run = measure_run(rows, StepWindow{kSecond});
  EXPECT_EQ(run.median_step, 10 * kMs);
  EXPECT_EQ(run.long_steps, 1);
  EXPECT_EQ(run.long_time, 50 * kMs);
}

}  // namespace
}  // namespace horo::tools
