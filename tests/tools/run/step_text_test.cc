// The figures of steps that the guard shows: of boards that ranks write, and as text.
#include "tools/horo/run/step_text.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tools/horo/run/progress_text.h"
#include "tools/horo/run/step_figures.h"

namespace horo::tools {
namespace {

using std::chrono::milliseconds;
using std::chrono::nanoseconds;
using testing::HasSubstr;

constexpr int kRanks = 3;

// Three ranks, of which rank 1 is late by 5 ms in its forward.
class Figures : public testing::Test {
 protected:
  void end_steps(int count, std::uint32_t epoch = 0) {
    for (int step = 0; step < count; ++step) {
      const TimePoint begin = now_;
      now_ += milliseconds(20);
      for (int rank = 0; rank < kRanks; ++rank) {
        StepRecord record;
        record.number = static_cast<std::uint64_t>(++numbers_[static_cast<std::size_t>(rank)]);
        record.begin = begin;
        record.end = now_;
        record.epoch = epoch;
        record.known = kKnownWithoutMarks | bit_of(Bar::kForward) | bit_of(Bar::kBackward) | bit_of(Bar::kOptimizer);
        record.samples = 4;
        const bool is_late = rank == 1;
        record.bars[index_of(Bar::kForward)] = milliseconds(is_late ? 9 : 4);
        record.bars[index_of(Bar::kBackward)] = milliseconds(10);
        record.bars[index_of(Bar::kSkew)] = milliseconds(is_late ? 0 : 5);
        record.bars[index_of(Bar::kTransfer)] = milliseconds(1);
        if (!is_late) record.late_ranks[0] = 1, record.late_skews[0] = milliseconds(5);
        boards_[static_cast<std::size_t>(rank)].end_step();
        boards_[static_cast<std::size_t>(rank)].write(rank, kRanks, record);
      }
    }
  }
  JobStatus status() const {
    JobStatus status;
    for (int id = 0; id < kRanks; ++id) status.members.push_back({id, id, 100 + id, "running", ""});
    figures_.describe(status, now_ + milliseconds(250));
    return status;
  }

  RunTable table_ = RunTable::make(kRanks);
  std::array<StepBoard, kRanks> boards_{StepBoard(table_.board(0)), StepBoard(table_.board(1)),
                                        StepBoard(table_.board(2))};
  std::array<int, kRanks> numbers_{};
  TimePoint now_ = TimePoint(std::chrono::hours(1));
  StepFiguresOfRanks figures_{&table_};
};

TEST_F(Figures, ProgressIsALine) {
  for (int id = 0; id < kRanks; ++id) figures_.started(id, id);
  JobStatus before = status();
  before.size = kRanks;
  EXPECT_EQ(progress_text(before), "no step has ended yet, 3 ranks");
  end_steps(1'200);
  JobStatus now = status();
  now.size = kRanks;
  EXPECT_EQ(progress_text(now), "step 1,200: 50.0 steps/s, 600 samples/s, 3 ranks");
  now.min_ranks = 2;
  now.members[2].rank.reset();
  now.checkpoint = 1'150;
  EXPECT_EQ(progress_text(now), "step 1,200: 50.0 steps/s, 400 samples/s, 2 ranks, checkpoint of step 1,150");
  for (MemberStatus& member : now.members) member.steps->age_s = 12;
  EXPECT_EQ(progress_text(now), "step 1,200: no step for 12 s, 2 ranks, checkpoint of step 1,150");
}

// On the host of rank 0 the steps of ranks of other hosts are there, too.
TEST(FiguresOfOtherHosts, AreInTheSummaryTheVerdictAndTheProgress) {
  RunTable table = RunTable::make(1, 3);
  StepFiguresOfRanks figures(&table);
  figures.started(0, 0);
  std::vector<StepBoard> boards{StepBoard(table.board(0)), StepBoard(table.other_board(1)),
                                StepBoard(table.other_board(2))};
  TimePoint now(std::chrono::hours(1));
  for (std::uint64_t number = 1; number <= 20; ++number, now += milliseconds(20)) {
    for (int rank = 0; rank < 3; ++rank) {
      StepRecord record;
      record.number = number;
      record.begin = now;
      record.end = now + milliseconds(20);
      record.samples = 4;
      record.known = kKnownWithoutMarks | bit_of(Bar::kForward);
      record.bars[index_of(Bar::kForward)] = milliseconds(rank == 2 ? 20 : 12);
      record.bars[index_of(Bar::kSkew)] = milliseconds(rank == 2 ? 0 : 8);
      if (rank != 2) record.late_ranks[0] = 2, record.late_skews[0] = milliseconds(8);
      boards[static_cast<std::size_t>(rank)].write(rank, 3, record);
    }
  }
  const std::string text = summary_text(figures.summary());
  EXPECT_THAT(text, HasSubstr("rank 2"));
  EXPECT_EQ(figures.summary().members.size(), 3U);
  JobStatus status;
  status.members.push_back({0, 0, 100, "running", ""});
  figures.describe(status, now);
  EXPECT_THAT(status.late, HasSubstr("rank 2"));
  status.size = 3;
  figures.add_others(status, now);
  EXPECT_EQ(progress_text(status), "step 20: 50.0 steps/s, 600 samples/s, 3 ranks");
}

TEST_F(Figures, AJobWithoutStepsShowsNone) {
  for (int id = 0; id < kRanks; ++id) figures_.started(id, id);
  EXPECT_EQ(steps_text(status()), "");
  EXPECT_EQ(summary_text(figures_.summary()), "");
  EXPECT_EQ(summary_text(StepFiguresOfRanks(nullptr).summary()), "");
}

TEST_F(Figures, AStepThatNoRankHasEndedSoonIsKnownOnceAllHaveEndedOne) {
  using std::chrono::milliseconds;
  EXPECT_FALSE(figures_.step_after(milliseconds(100)));
  for (int id = 0; id < kRanks; ++id) figures_.started(id, id);
  EXPECT_FALSE(figures_.step_after(milliseconds(100)));
  end_steps(40);  // of 20 ms
  EXPECT_EQ(figures_.step_after(milliseconds(0)), 42);
  EXPECT_EQ(figures_.step_after(milliseconds(100)), 47);
}

TEST_F(Figures, AStatusHasTheStepsOfEachRankAndWhichOneIsLate) {
  for (int id = 0; id < kRanks; ++id) figures_.started(id, id);
  end_steps(40);
  const JobStatus status = this->status();
  const StepFigures& steps = *status.members[0].steps;
  EXPECT_EQ(steps.steps, 40);
  EXPECT_EQ(steps.step, 20'000'000);
  EXPECT_EQ(steps.bars[index_of(Bar::kSkew)], 5'000'000);
  EXPECT_NEAR(*steps.samples_per_s, 200, 1e-9);
  EXPECT_NEAR(steps.age_s, 0.25, 1e-9);
  EXPECT_EQ(status.members[1].steps->waits, 10'000'000);
  EXPECT_EQ(status.members[2].steps->waits, 0);
  EXPECT_EQ(
      status.late,
      "17 % of the time the ranks wait for one another, 100 % of that for rank 1: it is late in nearly all steps, "
      "by 5.00 ms; its forward takes 5.00 ms more than that of the median rank");
  EXPECT_EQ(steps_text(status),
            "  rank  steps  step ms  samples/s  forward  backward  skew  transfer  other  waits for it\n"
            "     0     40     20.0        200     4.00      10.0  5.00      1.00   0.00          0.00  "
            "fffffbbbbbbbbbbbb......t\n"
            "     1     40     20.0        200     9.00      10.0  0.00      1.00   0.00          10.0  "
            "fffffffffffbbbbbbbbbbbbt\n"
            "     2     40     20.0        200     4.00      10.0  5.00      1.00   0.00          0.00  "
            "fffffbbbbbbbbbbbb......t\n"
            "  f forward  b backward  . skew  t transfer\n"
            "  " +
                status.late + "\n");
  const std::string json = to_json(status);
  EXPECT_EQ(to_json(status_from_json(json)), json);
  EXPECT_EQ(steps_text(status_from_json(json)), steps_text(status));
  EXPECT_THAT(steps_text(status, {.width = 40}), HasSubstr("\n  f forward  b backward  . skew\n  t transfer\n"));
}

TEST_F(Figures, ARankThatWasStoppedIsKnownAsThat) {
  for (int id = 0; id < kRanks; ++id) figures_.started(id, id);
  const TimePoint begin = now_;
  end_steps(10);
  for (int step = 0; step < 10; ++step) {
    figures_.stopped(1, true, begin + milliseconds(20 * step + 2));
    figures_.stopped(1, false, begin + milliseconds(20 * step + 7));
  }
  EXPECT_THAT(status().late, HasSubstr("it was stopped"));
}

TEST_F(Figures, ASummaryHasRanksThatHaveEnded) {
  for (int id = 0; id < kRanks; ++id) figures_.started(id, id);
  end_steps(16);
  for (int id = 0; id < kRanks; ++id) {
    figures_.ended(id);
    table_.clear(id);
  }
  EXPECT_FALSE(status().members[0].steps);
  const std::string text = summary_text(figures_.summary());
  EXPECT_THAT(text,
              HasSubstr("3 ranks, 16 steps, 600 samples/s, 78 % of the time in forward, backward and optimizer\n"));
  EXPECT_THAT(text, HasSubstr("\n     1     16     20.0        200     9.00      10.0"));
  EXPECT_THAT(text, HasSubstr("for rank 1"));
}

// Ranks of an epoch are other members than those of the one before.
TEST_F(Figures, WaitsForMembersOfSeveralEpochsAreNotKnown) {
  for (int id = 0; id < kRanks; ++id) figures_.started(id, id);
  end_steps(10, 0);
  end_steps(10, 1);
  const JobStatus summary = figures_.summary();
  EXPECT_FALSE(summary.members[1].steps->waits);
  EXPECT_EQ(summary.late, "");
  EXPECT_THAT(summary_text(summary), HasSubstr("n/a"));
  EXPECT_THAT(status().late, HasSubstr("rank 1"));  // of the present epoch
}

TEST(StepText, ABarThatIsNotKnownIsNotZero) {
  JobStatus status;
  status.members.push_back({0, 0, 1, "running", ""});
  status.members.push_back({1, 1, 2, "running", ""});
  for (MemberStatus& member : status.members) member.steps = StepFigures{10, 10, 1'000'000};
  status.members[0].steps->bars[index_of(Bar::kInput)] = 1'000'000;
  status.members[0].steps->known = bit_of(Bar::kInput);
  const std::string text = steps_text(status);
  EXPECT_THAT(text,
              HasSubstr("     0     10     1.00        n/a   1.00   0.00           n/a  iiiiiiiiiiiiiiiiiiiiiiii\n"));
  EXPECT_THAT(text, HasSubstr("     1     10     1.00        n/a    n/a   1.00           n/a"));
}

TEST(StepText, LettersFillTheWidth) {
  StepFigures figures;
  EXPECT_EQ(letters_of(figures, 10).size(), 10U);
  for (std::size_t bar = 0; bar < kBars; ++bar) figures.bars[bar] = static_cast<std::int64_t>(bar * bar + 1);
  for (const std::size_t width : {1U, 7U, 24U, 100U}) EXPECT_EQ(letters_of(figures, width).size(), width);
}

TEST(StepText, EachVerdictIsASentence) {
  Straggler one;
  one.exposed = 0.125;
  EXPECT_EQ(straggler_text(one), "12 % of the time the ranks wait for one another, for no single rank");
  one.when = When::kWithData;
  one.correlation = 0.91;
  EXPECT_THAT(straggler_text(one), HasSubstr("steps take as long as their data are (correlation 0.91)"));
  one.rank = 4;
  one.share = 0.8;
  one.when = When::kPeriodic;
  one.period = 20;
  one.late = milliseconds(60);
  one.cause = Cause::kCollection;
  one.excess = milliseconds(58);
  EXPECT_THAT(straggler_text(one), HasSubstr("80 % of that for rank 4: it is late in each step number 20, by 60.0 ms; "
                                             "Python collected garbage there for 58.0 ms"));
  one.cause = Cause::kNoCore;
  one.when = When::kAtRandom;
  one.steps = 0.1;
  EXPECT_THAT(straggler_text(one), HasSubstr("in 10 % of the steps, at random, by 60.0 ms; its training thread waited "
                                             "for a core"));
  one.cause = Cause::kNotExplained;
  EXPECT_THAT(straggler_text(one), HasSubstr("no part of its step explains it"));
}

}  // namespace
}  // namespace horo::tools
