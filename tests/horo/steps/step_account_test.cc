#include "horo/steps/step_account.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <random>
#include <vector>

#include "tests/effort.h"
#include "tests/horo/steps/times.h"

namespace horo::test {
namespace {

using enum MarkKind;
using ::testing::ElementsAre;
using ::testing::Pair;
using ::testing::UnorderedElementsAre;

constexpr std::uint32_t kAllKinds = (1U << kMarkKinds) - 1;

StepMark opens(MarkKind kind, std::int64_t ms) {
  return {kind, true, at(ms)};
}
StepMark closes(MarkKind kind, std::int64_t ms) {
  return {kind, false, at(ms)};
}
StepEnd end_at(std::int64_t ms, std::uint32_t kinds = kAllKinds) {
  StepEnd end;
  end.at = at(ms);
  end.kinds = kinds;
  return end;
}

class StepAccountTest : public ::testing::Test {
 protected:
  StepAccountTest() { account_.begin(at(0)); }
  StepRecord end(const StepEnd& end, const std::vector<StepMark>& marks) { return account_.end(end, marks, done_); }

  StepAccount account_;
  JobTimes::Taken done_;
};

// A step of a script as DistributedOptimizer sees it: it ends inside of the call of backward.
TEST_F(StepAccountTest, EachNanosecondBelongsToTheInnermostMarkOrToWhatIsBetweenMarks) {
  account_.begin(at(-5));
  end(end_at(0), {opens(kBackward, -2)});
  account_.add({at(60), at(70)});
  done_.jobs = {job_of(63, 64, 65, 69, 70)};
  const StepRecord step =
      end(end_at(72), {closes(kBackward, 1), opens(kOptimizer, 5), opens(kCheckpoint, 7), closes(kCheckpoint, 9),
                       closes(kOptimizer, 12), opens(kInput, 20), closes(kInput, 30), opens(kBackward, 45)});
  EXPECT_THAT(shown(step.bars), UnorderedElementsAre(Pair("input", 10), Pair("forward", 15), Pair("backward", 18),
                                                     Pair("after_backward", 4), Pair("optimizer", 5),
                                                     Pair("checkpoint", 2), Pair("between", 8), Pair("skew", 3),
                                                     Pair("agreement", 1), Pair("hand_over", 2), Pair("transfer", 4)));
  EXPECT_EQ(step.begin, at(0));
  EXPECT_EQ(step.end, at(72));
  EXPECT_EQ(sum_of(step.bars), ms(72));
  EXPECT_EQ(step.late_ranks[0], 2);
  EXPECT_EQ(step.late_skews[0], ms(3));
}

TEST_F(StepAccountTest, WithoutAnInputForwardBeginsAtTheOptimizersEnd) {
  const StepRecord step = end(end_at(30), {opens(kOptimizer, 2), closes(kOptimizer, 4), opens(kBackward, 20)});
  EXPECT_THAT(shown(step.bars), UnorderedElementsAre(Pair("between", 2), Pair("optimizer", 2), Pair("forward", 16),
                                                     Pair("backward", 10)));
}

TEST_F(StepAccountTest, AccumulatingPassesHaveAForwardEach) {
  const StepRecord step =
      end(end_at(50), {opens(kInput, 0), closes(kInput, 5), opens(kBackward, 10), closes(kBackward, 20),
                       opens(kInput, 25), closes(kInput, 30), opens(kBackward, 35)});
  EXPECT_THAT(shown(step.bars),
              UnorderedElementsAre(Pair("input", 10), Pair("forward", 10), Pair("backward", 25), Pair("between", 5)));
}

TEST_F(StepAccountTest, ABackwardInsideOfTheOptimizerIsBackward) {
  const StepRecord step = end(end_at(30), {opens(kOptimizer, 5), opens(kBackward, 10), closes(kBackward, 20),
                                           closes(kOptimizer, 25), opens(kInput, 30)});
  EXPECT_THAT(shown(step.bars), UnorderedElementsAre(Pair("between", 10), Pair("optimizer", 10), Pair("backward", 10)));
}

TEST_F(StepAccountTest, AValidationIsInputAndBetween) {
  const StepRecord step = end(end_at(40), {opens(kInput, 0), closes(kInput, 5), opens(kInput, 15), closes(kInput, 20),
                                           opens(kInput, 30), closes(kInput, 35), opens(kBackward, 40)});
  EXPECT_THAT(shown(step.bars), UnorderedElementsAre(Pair("input", 15), Pair("between", 20), Pair("forward", 5)));
}

TEST_F(StepAccountTest, ABarThatTheCallerDoesNotMarkIsNotKnownAndItsTimeIsBetween) {
  account_.add({at(10), at(20)});
  const StepRecord step = end(end_at(30, 0), {opens(kInput, 2), closes(kInput, 4)});
  EXPECT_THAT(shown(step.bars), UnorderedElementsAre(Pair("between", 20), Pair("hand_over", 10)));
  EXPECT_EQ(step.known, kKnownWithoutMarks);
  EXPECT_EQ(step.gc_ns, kNotKnown);
  const StepRecord next = end(end_at(60, 1U << static_cast<int>(kInput)), {opens(kInput, 32), closes(kInput, 34)});
  EXPECT_THAT(shown(next.bars), UnorderedElementsAre(Pair("between", 28), Pair("input", 2)));
}

TEST_F(StepAccountTest, CollectionsAreCountedBesideTheBars) {
  const StepRecord step =
      end(end_at(30), {opens(kBackward, 0), opens(kCollection, 5), closes(kCollection, 9), opens(kCollection, 28)});
  EXPECT_EQ(step.gc_ns, 6'000'000);
  EXPECT_EQ(end(end_at(40), {closes(kCollection, 33)}).gc_ns, 3'000'000);
  EXPECT_THAT(shown(step.bars), UnorderedElementsAre(Pair("backward", 30)));
}

TEST_F(StepAccountTest, TransferOutsideOfWaitsIsHidden) {
  account_.add({at(15), at(20)});
  done_.jobs = {job_of(0, 1, 2, 12, 12), job_of(12, 13, 13, 18, 19)};
  const StepRecord step = end(end_at(20), {opens(kBackward, 0)});
  EXPECT_EQ(step.hidden_transfer_ns, 12'000'000);
  EXPECT_EQ(step.bars[index_of(Bar::kTransfer)], ms(3));
}

TEST_F(StepAccountTest, AWaitOutsideOfHorosCallsIsEstimatedFromTheLastSubmission) {
  done_.jobs = {job_of(22, 23, 23, 29, 30)};
  StepEnd ends = end_at(30);
  ends.waits_elsewhere = true;
  ends.last_submission = at(20);
  const StepRecord step = end(ends, {opens(kBackward, 10)});
  EXPECT_THAT(shown(step.bars), UnorderedElementsAre(Pair("forward", 10), Pair("backward", 10), Pair("skew", 2),
                                                     Pair("agreement", 1), Pair("transfer", 6), Pair("hand_over", 1)));
  EXPECT_EQ(step.flags, kEstimatedWait);
  ends.at = at(50);  // another thread has submitted
  EXPECT_THAT(shown(end(ends, {}).bars), UnorderedElementsAre(Pair("backward", 20)));
}

TEST_F(StepAccountTest, OfTheRanksThatWereLateTheLargestAreInTheStepAndAllInTheSums) {
  std::int64_t begin = 0;
  for (const int late : {1, 4, 2, 3}) {
    JobTime job = job_of(begin + late, begin + late, begin + late, begin + 10, begin + 10);
    job.last = late;
    done_.jobs.push_back(job);
    account_.add({at(begin), at(begin + 10)});
    begin += 10;
  }
  const StepRecord step = end(end_at(40), {});
  EXPECT_THAT(step.late_ranks, ElementsAre(4, 3, 2));
  EXPECT_THAT(account_.skew_by_rank(), ElementsAre(Pair(1, ms(1)), Pair(2, ms(2)), Pair(3, ms(3)), Pair(4, ms(4))));
}

TEST_F(StepAccountTest, WaitsBeyondTheMostThatAreKeptAreSaid) {
  for (std::size_t i = 0; i <= StepAccount::kMostWaits; ++i) account_.add({at(1), at(1)});
  EXPECT_EQ(end(end_at(30), {}).flags, kTooManyWaits);
  EXPECT_EQ(end(end_at(40), {}).flags, 0U);
}

// ---- Random marks, waits, jobs and frozen spans, in any disorder.

class RandomStep {
 public:
  explicit RandomStep(std::uint64_t seed) : random_(seed) {}

  std::int64_t below(std::int64_t limit) {
    return static_cast<std::int64_t>(random_() % static_cast<std::uint64_t>(limit));
  }
  TimePoint time() { return at(0) + std::chrono::nanoseconds(below(3'000) - 500); }

  std::vector<StepMark> marks() {
    std::vector<StepMark> marks(static_cast<std::size_t>(below(12)));
    for (StepMark& mark : marks) mark = {static_cast<MarkKind>(below(kMarkKinds)), below(2) == 0, time()};
    if (below(4) > 0) std::ranges::sort(marks, {}, &StepMark::at);
    return marks;
  }
  std::vector<StepWait> waits() {
    std::vector<StepWait> waits(static_cast<std::size_t>(below(6)));
    for (StepWait& wait : waits) {
      const TimePoint begin = time();
      wait = {begin, begin + std::chrono::nanoseconds(below(800)), below(2) == 0 ? kAllLanes : 0, below(4) > 0};
    }
    std::ranges::sort(waits, {}, &StepWait::begin);
    return waits;
  }
  JobTimes::Taken done() {
    JobTimes::Taken done;
    done.jobs.resize(static_cast<std::size_t>(below(6)));
    for (JobTime& job : done.jobs) job = this->job();
    std::ranges::sort(done.jobs, {}, &JobTime::begun);
    if (below(4) == 0) {
      const TimePoint begin = time();
      done.frozen = {{begin, begin + std::chrono::nanoseconds(below(500))}};
    }
    return done;
  }

 private:
  JobTime job() {
    JobTime job;
    job.lane = static_cast<std::uint32_t>(below(2));
    job.last = static_cast<std::int32_t>(below(4)) - 1;
    job.commits = below(2) == 0;
    job.is_aborted = below(8) == 0;
    job.begun = time();
    job.released = job.begun - std::chrono::nanoseconds(below(300));
    if (below(5) > 0) job.ready = job.released + std::chrono::nanoseconds(below(600) - 500);
    TimePoint last = job.begun;
    for (TimePoint& end : job.ends) end = last += std::chrono::nanoseconds(below(200));
    return job;
  }

  std::mt19937_64 random_;
};

// The time of the waits before the last time at which a last rank was ready.
Duration most_skew(const std::vector<StepWait>& waits, const std::vector<JobTime>& jobs) {
  TimePoint last = at(-1'000);
  for (const JobTime& job : jobs) {
    if (job.ready != TimePoint::min()) last = std::max(last, std::min(job.ready, job.released));
  }
  Duration most{};
  for (const StepWait& wait : waits) most += std::max(std::min(wait.end, last) - wait.begin, Duration{});
  return most;
}

// The pieces of a step are its bars, one behind the other.
void expect_pieces_of(const StepRecord& step, const std::vector<StepPiece>& pieces) {
  Bars sums{};
  TimePoint at = step.begin;
  for (const StepPiece& piece : pieces) {
    ASSERT_EQ(piece.begin, at);
    ASSERT_LT(piece.begin, piece.end);
    ASSERT_LT(index_of(piece.bar), kBars);
    sums[index_of(piece.bar)] += piece.end - piece.begin;
    at = piece.end;
  }
  ASSERT_EQ(at, step.end);
  ASSERT_EQ(sums, step.bars);
}

TEST(StepAccountProperty, TheBarsOfAnyStepAddUpAndNoneIsNegative) {
  RandomStep random(39);
  StepAccount account;
  account.begin(at(0));
  TimePoint begin = at(0);
  for (int i = 0; i < effort(100'000); ++i) {
    SCOPED_TRACE(i);
    const std::vector<StepWait> waits = random.waits();
    for (const StepWait& wait : waits) account.add(wait);
    const JobTimes::Taken done = random.done();
    StepEnd end;
    end.at = begin + std::chrono::nanoseconds(random.below(2'500));
    end.kinds = static_cast<std::uint32_t>(random.below(kAllKinds + 1));
    end.is_in_forward = random.below(2) == 0;
    end.waits_elsewhere = random.below(4) == 0;
    end.last_submission = random.time();
    account.keep_pieces(i % 2 == 0);
    const StepRecord step = account.end(end, random.marks(), done);
    if (i % 2 == 0) expect_pieces_of(step, account.pieces());
    ASSERT_TRUE(i % 2 == 0 || account.pieces().empty());
    ASSERT_EQ(step.begin, begin);
    ASSERT_EQ(step.end, end.at);
    ASSERT_EQ(sum_of(step.bars), step.end - step.begin);
    for (std::size_t bar = 0; bar < kBars; ++bar) {
      ASSERT_GE(step.bars[bar].count(), 0) << kBarNames[bar];
      ASSERT_TRUE((step.known >> bar & 1) != 0 || step.bars[bar].count() == 0) << kBarNames[bar];
    }
    ASSERT_GE(step.hidden_transfer_ns, 0);
    ASSERT_GE(step.hidden_copies_ns, 0);
    if (!end.waits_elsewhere) {
      ASSERT_LE(step.bars[index_of(Bar::kSkew)], most_skew(waits, done.jobs));
    }
    begin = step.end;
    if (random.below(3) == 0 || begin > at(0) + std::chrono::microseconds(2)) account.begin(begin = at(0));
  }
}

}  // namespace
}  // namespace horo::test
