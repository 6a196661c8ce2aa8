// The plan, the user's words and what is said about the figures.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <stdexcept>

#include "tests/tools/scale/random_rows.h"
#include "tools/horo/scale/findings.h"
#include "tools/horo/scale/scale_plan.h"
#include "tools/horo/scale/script_words.h"

namespace horo::tools {
namespace {

using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

ScalePlan plan_for(std::vector<int> sizes) {
  ScalePlan plan;
  plan.sizes = std::move(sizes);
  plan.run_ns = 40'000'000'000;
  return plan;
}

TEST(ScalePlan, EveryRoundHasEachSizeOnce) {
  ScalePlan plan = plan_for({1, 2});
  plan.rounds = 2;
  std::vector<std::pair<int, int>> runs;
  for (const PlannedRun& run : plan.runs()) runs.emplace_back(run.round, run.ranks);
  EXPECT_THAT(runs, ElementsAre(std::pair(1, 1), std::pair(1, 2), std::pair(2, 1), std::pair(2, 2)));
}

TEST(ScalePlan, TheFirstLineSaysHowLongAllTakes) {
  EXPECT_THAT(plan_for({1, 2, 4}).text(8),
              HasSubstr("3 sizes x 3 rounds of 40 s behind a warm-up of 10 steps and 4 s: about 7 min"));
  EXPECT_THAT(plan_for({1, 2, 4}).text(8), HasSubstr("Each rank has 2 cores at every size"));
  EXPECT_THAT(plan_for({1, 2, 4}).text(2), HasSubstr("4 ranks on 2 cores: efficiency says nothing about larger"));
  EXPECT_THAT(plan_for({2}).text(2), HasSubstr("one size only"));
}

TEST(SizesFrom, AreAscendingAndEachOnce) {
  EXPECT_THAT(sizes_from("4,1,2,4"), ElementsAre(1, 2, 4));
  for (const char* wrong : {"", "0", "1,", "1,,2", "a", "-1", "1025", "1 2"}) {
    if (std::string(wrong) == "1,") continue;  // as a list of one
    EXPECT_THROW(sizes_from(wrong), std::invalid_argument) << wrong;
  }
}

TEST(TimeText, IsShort) {
  EXPECT_EQ(time_text(40'000'000'000), "40 s");
  EXPECT_EQ(time_text(1'500'000'000), "1.5 s");
  EXPECT_EQ(time_text(420'000'000'000), "7 min");
}

TEST(AbsoluteWords, ChangesWordsThatNameFiles) {
  const std::filesystem::path folder = std::filesystem::temp_directory_path() / ("words" + std::to_string(::getpid()));
  std::filesystem::create_directories(folder / "data");
  std::ofstream(folder / "train.py") << "\n";
  const std::string here = folder.string();
  EXPECT_THAT(absolute_words({"python", "train.py", "data", "data/", "--data=data/", "--lr=0.1", "none.py"}, folder),
              ElementsAre("python", here + "/train.py", "data", here + "/data/", "--data=" + here + "/data/",
                          "--lr=0.1", "none.py"));
  std::filesystem::remove_all(folder);
}

TEST(CheckSamples, TellsTheOtherKindOfScaling) {
  std::vector<RunData> runs{run_of(1, 1, 10 * kMs), run_of(2, 1, 10 * kMs)};
  EXPECT_EQ(check_samples(runs, false).samples, 64);
  EXPECT_EQ(check_samples(runs, false).error, "");
  EXPECT_THAT(check_samples(runs, true).error, HasSubstr("64 with 1 rank, 128 with 2 ranks"));
  EXPECT_THAT(check_samples(runs, true).error, HasSubstr("without --strong"));
  runs[1].samples_of_rank = 32;
  runs[1].samples_of_step = 64;
  EXPECT_EQ(check_samples(runs, true).samples, 64);
  EXPECT_THAT(check_samples(runs, false).error, HasSubstr("is measured with --strong"));
}

TEST(CheckSamples, SaysNothingWithoutSamples) {
  std::vector<RunData> runs{run_of(1, 1, 10 * kMs)};
  runs[0].samples_of_rank.reset();
  EXPECT_EQ(check_samples(runs, false).samples, std::nullopt);
  EXPECT_EQ(check_samples(runs, false).error, "");
}

std::vector<std::string> said(const std::vector<RunData>& runs, const ScalePlan& plan, int cores = 64) {
  return findings_of(runs, table_of(runs, false), plan, cores);
}

TEST(FindingsOf, QuietRunsNeedNoWords) {
  EXPECT_THAT(said({run_of(1, 1, 10 * kMs), run_of(2, 1, 10 * kMs)}, plan_for({1, 2})), ElementsAre());
}

TEST(FindingsOf, TellsASizeThatFailed) {
  std::vector<RunData> runs{run_of(1, 1, 10 * kMs), run_of(2, 1, 10 * kMs), run_of(4, 1, 10 * kMs)};
  runs[2].failure = "exit code 3";
  EXPECT_THAT(said(runs, plan_for({1, 2, 4})), ElementsAre("failed with 4 ranks: exit code 3; 1 and 2 are shown"));
}

TEST(FindingsOf, TellsWhatTheFiguresDoNotSay) {
  EXPECT_THAT(said({run_of(1, 1, 10 * kMs)}, plan_for({1})), Contains(HasSubstr("one size only")));
  EXPECT_THAT(said({run_of(4, 1, 10 * kMs)}, plan_for({4}), 2), Contains(HasSubstr("4 ranks on 2 cores")));
  EXPECT_THAT(said({run_of(2, 1, 10 * kMs), run_of(4, 1, 10 * kMs)}, plan_for({2, 4})),
              Contains(HasSubstr("100 % is 2 ranks")));
}

TEST(FindingsOf, TellsRoundsThatDiffer) {
  const std::vector<RunData> runs{run_of(1, 1, 10 * kMs), run_of(1, 2, 12 * kMs)};
  EXPECT_THAT(said(runs, plan_for({1, 2})), Contains(HasSubstr("the rounds with 1 rank differ by 20 %")));
}

TEST(FindingsOf, TellsStepsThatLookLikePartsOfOneBatch) {
  std::vector<RunData> runs{run_of(1, 1, 20 * kMs), run_of(2, 1, 11 * kMs)};
  EXPECT_THAT(said(runs, plan_for({1, 2})), ElementsAre()) << "samples tell it";
  const auto without_samples = [](std::vector<RunData> all) {
    for (RunData& run : all) {
      for (RankSums& rank : run.by_rank) rank.sums.samples.reset();
    }
    return all;
  };
  EXPECT_THAT(said(without_samples(runs), plan_for({1, 2})), Contains(HasSubstr("more than 100 % with 2 ranks")));
  runs[1] = run_of(2, 1, 19 * kMs);
  EXPECT_THAT(said(without_samples(runs), plan_for({1, 2})), Not(Contains(HasSubstr("more than 100 %"))));
}

TEST(FindingsOf, TellsStepsWithoutSamplesAndWaitsForCores) {
  std::vector<RunData> runs{run_of(1, 1, 10 * kMs), run_of(2, 1, 10 * kMs)};
  for (RunData& run : runs) {
    for (RankSums& rank : run.by_rank) {
      rank.sums.samples.reset();
      rank.sums.run_queue = rank.sums.time / 20;
    }
  }
  EXPECT_THAT(said(runs, plan_for({1, 2})), Contains(HasSubstr("samples are not known, so steps are counted")));
  EXPECT_THAT(said(runs, plan_for({1, 2})), Contains(HasSubstr("waited for a core for 5.0 % of the step")));
}

}  // namespace
}  // namespace horo::tools
