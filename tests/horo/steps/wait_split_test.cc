#include "horo/steps/wait_split.h"

#include <gmock/gmock.h>

#include <array>
#include <vector>

#include "tests/horo/steps/times.h"

namespace horo::test {
namespace {

using ::testing::ElementsAre;
using ::testing::Pair;
using ::testing::UnorderedElementsAre;

struct Split {
  Bars bars{};
  Skews late;
};

Split split(const StepWait& wait, const std::vector<JobTime>& jobs, const std::vector<TimeSpan>& frozen = {}) {
  Split result;
  split_wait(wait, jobs, frozen, result.bars, result.late);
  EXPECT_EQ(sum_of(result.bars), wait.end - wait.begin);
  return result;
}

TEST(WaitSplit, AWaitGoesThroughSkewAgreementHandOverTransferAndHandOver) {
  const Split found = split({at(0), at(30)}, {job_of(10, 14, 17, 25, 26)});
  EXPECT_THAT(shown(found.bars),
              UnorderedElementsAre(Pair("skew", 10), Pair("agreement", 4), Pair("hand_over", 8), Pair("transfer", 8)));
  EXPECT_THAT(found.late.by_rank, ElementsAre(Pair(2, ms(10))));
}

TEST(WaitSplit, ARankThatIsReadyLastHasNoSkew) {
  const Split found = split({at(10), at(30)}, {job_of(9, 14, 14, 30, 31)});
  EXPECT_THAT(shown(found.bars), UnorderedElementsAre(Pair("agreement", 4), Pair("transfer", 16)));
  EXPECT_THAT(found.late.by_rank, ElementsAre());
}

TEST(WaitSplit, WithoutTheLastRanksTimeEverythingBeforeTheReleaseIsAgreement) {
  JobTime job = job_of(0, 14, 14, 20, 20);
  job.ready = TimePoint::min();
  EXPECT_THAT(shown(split({at(0), at(20)}, {job}).bars),
              UnorderedElementsAre(Pair("agreement", 14), Pair("transfer", 6)));
}

TEST(WaitSplit, AReadyTimeAfterTheReleaseCountsAsTheRelease) {
  EXPECT_THAT(shown(split({at(0), at(20)}, {job_of(99, 14, 14, 20, 20)}).bars),
              UnorderedElementsAre(Pair("skew", 14), Pair("transfer", 6)));
}

TEST(WaitSplit, PackAndUnpackAreCopiesAndTheBarrierOfARoundIsCommit) {
  JobTime job = job_of(0, 0, 0, 20, 26);
  job.ends = {at(5), at(20), at(24), at(26)};
  EXPECT_THAT(shown(split({at(0), at(26)}, {job}).bars),
              UnorderedElementsAre(Pair("copies", 9), Pair("transfer", 15), Pair("hand_over", 2)));
  job.commits = true;
  EXPECT_THAT(shown(split({at(0), at(26)}, {job}).bars),
              UnorderedElementsAre(Pair("copies", 5), Pair("transfer", 15), Pair("commit", 4), Pair("hand_over", 2)));
}

TEST(WaitSplit, AWaitInTheMiddleOfAJobHasItsPhasesFromThereOn) {
  EXPECT_THAT(shown(split({at(15), at(18)}, {job_of(2, 3, 4, 30, 30)}).bars),
              UnorderedElementsAre(Pair("transfer", 3)));
}

TEST(WaitSplit, JobsOfOtherLanesAreNotWaitedFor) {
  JobTime other = job_of(0, 0, 0, 8, 8);
  other.lane = 7;
  const std::vector<JobTime> jobs = {other, job_of(5, 6, 7, 9, 10)};
  EXPECT_THAT(shown(split({at(0), at(10), 0}, jobs).bars),
              UnorderedElementsAre(Pair("skew", 5), Pair("agreement", 1), Pair("hand_over", 2), Pair("transfer", 2)));
  EXPECT_THAT(shown(split({at(0), at(10), kAllLanes}, jobs).bars),
              UnorderedElementsAre(Pair("transfer", 9), Pair("hand_over", 1)));
}

TEST(WaitSplit, ASliceThatEndsBeforeTheJobIsPartOfTheWaitForIt) {
  const std::vector<JobTime> jobs = {job_of(50, 52, 53, 60, 60)};
  EXPECT_THAT(shown(split({at(0), at(40), 0, false}, jobs).bars), UnorderedElementsAre(Pair("skew", 40)));
  EXPECT_THAT(shown(split({at(0), at(40), 0, true}, jobs).bars), UnorderedElementsAre(Pair("hand_over", 40)));
}

TEST(WaitSplit, AFrozenEpochIsMembershipAndSoIsTheJobThatEndedWithIt) {
  JobTime aborted = job_of(2, 3, 4, 12, 12);
  aborted.is_aborted = true;
  const Split found = split({at(0), at(60)}, {aborted, job_of(45, 46, 46, 58, 60)}, {{at(10), at(40)}});
  EXPECT_THAT(shown(found.bars), UnorderedElementsAre(Pair("skew", 7), Pair("agreement", 2), Pair("hand_over", 3),
                                                      Pair("membership", 36), Pair("transfer", 12)));
}

TEST(WaitSplit, TheOverlapWithWaitsCountsEachOfThemOnce) {
  const std::array waits = {StepWait{at(0), at(10)}, StepWait{at(20), at(30)}, StepWait{at(40), at(50)}};
  EXPECT_EQ(overlap({at(5), at(25)}, waits), ms(10));
  EXPECT_EQ(overlap({at(10), at(20)}, waits), ms(0));
  EXPECT_EQ(overlap({at(-5), at(99)}, waits), ms(30));
}

}  // namespace
}  // namespace horo::test
