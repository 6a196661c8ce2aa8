#include "horo/steps/steps.h"

#include <gmock/gmock.h>
#include <malloc.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

#include "horo/steps/step_file.h"
#include "tests/effort.h"
#include "tests/horo/steps/times.h"

namespace horo::test {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Pair;
using ::testing::SizeIs;
using ::testing::UnorderedElementsAre;

StepEnd ended_at(std::int64_t ms, std::uint64_t stream = 0) {
  StepEnd end;
  end.at = at(ms);
  end.stream = stream;
  return end;
}

TEST(Steps, TheFirstEndOfAThreadBeginsItsFirstStep) {
  Steps steps(true, nullptr);
  EXPECT_FALSE(steps.is_training_thread());
  steps.waited({at(-5), at(-1)});
  steps.end(ended_at(0), {});
  EXPECT_TRUE(steps.is_training_thread());
  EXPECT_FALSE(steps.last_step());
  steps.waited({at(2), at(5)});
  steps.end(ended_at(10), {});
  ASSERT_TRUE(steps.last_step());
  EXPECT_EQ(steps.last_step()->number, 1U);
  EXPECT_THAT(shown(steps.last_step()->bars), UnorderedElementsAre(Pair("between", 7), Pair("hand_over", 3)));
  EXPECT_GE(steps.last_step()->cpu_ns, 0);
}

TEST(Steps, WhatTheKernelCountsIsThatSinceTheLastStepThatHasIt) {
  Steps steps(true, nullptr);
  for (const std::int64_t end_ms : {0, 3, 6, 9, 12, 15, 30, 33}) steps.end(ended_at(end_ms), {});
  std::vector<bool> are_known;
  for (const StepRecord& step : steps.last(10)) {
    are_known.push_back(step.cpu_ns != kNotKnown);
    EXPECT_EQ(step.switches == -1, step.cpu_ns == kNotKnown);
  }
  EXPECT_THAT(are_known, ElementsAre(false, false, false, true, false, true, false));
}

TEST(Steps, WaitsOfOtherThreadsDoNotCountAndAnotherThreadThatEndsAStepBeginsAnew) {
  Steps steps(true, nullptr);
  steps.end(ended_at(0), {});
  std::thread([&] { steps.waited({at(2), at(5)}); }).join();
  steps.end(ended_at(10), {});
  EXPECT_THAT(shown(steps.last_step()->bars), UnorderedElementsAre(Pair("between", 10)));
  std::thread([&] {
    steps.end(ended_at(12), {});
    steps.end(ended_at(15), {});
  }).join();
  EXPECT_EQ(steps.last_step()->number, 2U);
  EXPECT_EQ(steps.last_step()->begin, at(12));
  EXPECT_FALSE(steps.is_training_thread());
}

TEST(Steps, TheLastStepsAreKeptAndTheSumsAreOfAll) {
  Steps steps(true, nullptr);
  constexpr auto kSteps = static_cast<std::int64_t>(Steps::kKept) + 100;
  steps.end(ended_at(0), {});
  for (std::int64_t i = 1; i <= kSteps; ++i) steps.end(ended_at(i, 1 + static_cast<std::uint64_t>(i % 2)), {});
  const std::vector<StepRecord> last = steps.last(5'000);
  ASSERT_THAT(last, SizeIs(Steps::kKept));
  EXPECT_EQ(last.front().number, 101U);
  EXPECT_EQ(last.back().number, static_cast<std::uint64_t>(kSteps));
  EXPECT_EQ(last.back().end, at(kSteps));
  EXPECT_EQ(steps.last(2).front().number, static_cast<std::uint64_t>(kSteps) - 1);
  EXPECT_EQ(steps.sums().steps, static_cast<std::uint64_t>(kSteps));
  EXPECT_EQ(steps.sums().time, ms(kSteps));
  EXPECT_EQ(steps.sums().bars[index_of(Bar::kBetween)], ms(kSteps));
  EXPECT_EQ(steps.sums_by_stream().at(1).steps + steps.sums_by_stream().at(2).steps, steps.sums().steps);
}

TEST(Steps, StreamsBeyondTheMostThatHaveSumsAreInTheSumOfAll) {
  Steps steps(true, nullptr);
  for (std::int64_t i = 0; i <= 200; ++i) steps.end(ended_at(i, static_cast<std::uint64_t>(i)), {});
  EXPECT_THAT(steps.sums_by_stream(), SizeIs(Steps::kMostStreams));
  EXPECT_EQ(steps.sums().steps, 200U);
}

std::size_t allocated_bytes() {
  const auto info = ::mallinfo2();
  return info.uordblks + info.hblkhd;
}

TEST(Steps, MemoryIsFlatOverAMillionSteps) {
  if (kSanitized) GTEST_SKIP() << "their malloc does not tell what is allocated";
  Steps steps(true, nullptr);
  std::size_t before = 0;
  for (std::int64_t i = 0; i < 1'000'000; ++i) {
    const StepMark marks[] = {{MarkKind::kBackward, true, at(i)}, {MarkKind::kBackward, false, at(i)}};
    steps.waited({at(i), at(i)});
    steps.end(ended_at(i, static_cast<std::uint64_t>(i % 200)), marks);
    if (i == 10'000) before = allocated_bytes();
  }
  EXPECT_LE(allocated_bytes(), before + 4'096);
}

TEST(Steps, OffNothingIsKept) {
  Steps steps(false, nullptr);
  steps.end(ended_at(0), {});
  steps.end(ended_at(1), {});
  EXPECT_FALSE(steps.is_training_thread());
  EXPECT_THAT(steps.last(9), IsEmpty());
}

StepRecord record() {
  StepRecord step;
  step.number = 7;
  step.stream = ~std::uint64_t{0};
  step.begin = at(0);
  step.end = at(5);
  step.bars[index_of(Bar::kSkew)] = ms(5);
  step.known = kKnownWithoutMarks;
  step.late_ranks[0] = 2;
  step.late_skews[0] = ms(5);
  step.flags = kEstimatedWait | kJobsForgotten;
  return step;
}

TEST(StepFile, AStepIsALineOfIntegersAndWhatIsNotKnownIsNull) {
  EXPECT_EQ(
      step_line(record(), 4),
      "{\"rank\":4,\"step\":7,\"stream\":18446744073709551615,\"epoch\":0,\"begin\":1000000000000,\"time\":5000000,"
      "\"bars\":{\"input\":null,\"forward\":null,\"backward\":null,\"after_backward\":null,\"optimizer\":null,"
      "\"checkpoint\":null,\"between\":0,\"skew\":5000000,\"agreement\":0,\"transfer\":0,\"copies\":0,"
      "\"commit\":0,\"hand_over\":0,\"membership\":0},\"hidden_transfer\":0,\"hidden_copies\":0,\"gc\":null,"
      "\"cpu\":null,\"run_queue\":null,\"switches\":null,\"samples\":null,\"work\":null,"
      "\"late\":{\"2\":5000000},\"notes\":[\"estimated_wait\",\"jobs_forgotten\"]}");
}

TEST(StepFile, EveryRecordIsInTheFileAfterItsEnd) {
  const std::string path = ::testing::TempDir() + "steps_of_step_file_test.jsonl";
  {
    StepFile file(path, 1);
    for (int i = 0; i < 100; ++i) file.add(record());
    EXPECT_THROW(StepFile(path, 1), std::invalid_argument);
  }
  std::ifstream in(path);
  std::string line;
  int lines = 0;
  for (; std::getline(in, line); ++lines) EXPECT_THAT(line, HasSubstr("{\"rank\":1,\"step\":7,"));
  EXPECT_EQ(lines, 100);
  std::filesystem::remove(path);
}

}  // namespace
}  // namespace horo::test
