#include "horo/steps/job_times.h"

#include <gmock/gmock.h>

#include <array>

#include "tests/horo/steps/times.h"

namespace horo::test {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::SizeIs;

JobTime begun_at(std::int64_t ms, std::uint32_t lane = 0) {
  JobTime job;
  job.lane = lane;
  job.released = job.begun = at(ms);
  return job;
}

class JobTimesTest : public ::testing::Test {
 protected:
  const JobTimes::Taken& taken(std::int64_t ms) {
    times_.take(at(ms), taken_);
    return taken_;
  }
  void run(std::int64_t begin, std::int64_t end, std::uint32_t lane = 0) {
    times_.begin(&lanes_[lane], begun_at(begin, lane));
    times_.mark(&lanes_[lane], Phase::kTransfer, at(end));
    times_.end(&lanes_[lane], 0, at(end));
  }
  JobTimes times_{true};
  JobTimes::Taken taken_;
  std::array<int, 2> lanes_{};
};

TEST_F(JobTimesTest, AJobIsTakenOnceWithThePhasesThatItHad) {
  run(0, 10);
  ASSERT_THAT(taken(20).jobs, SizeIs(1));
  EXPECT_THAT(taken_.jobs[0].ends, ElementsAre(at(0), at(10), at(10), at(10)));
  EXPECT_THAT(taken(20).jobs, IsEmpty());
}

TEST_F(JobTimesTest, AJobThatRunsIsInTransferUntilNowAndIsTakenAgainAsAWhole) {
  times_.begin(&lanes_[0], begun_at(0));
  times_.mark(&lanes_[0], Phase::kPack, at(3));
  EXPECT_THAT(taken(20).jobs.at(0).ends, ElementsAre(at(3), at(20), at(20), at(20)));
  times_.mark(&lanes_[0], Phase::kTransfer, at(25));
  EXPECT_THAT(taken(30).jobs.at(0).ends, ElementsAre(at(3), at(25), at(30), at(30)));
  times_.end(&lanes_[0], 0, at(31));
  EXPECT_THAT(taken(40).jobs.at(0).ends, ElementsAre(at(3), at(25), at(25), at(31)));
}

TEST_F(JobTimesTest, AJobThatDoesNotEndWasAborted) {
  times_.begin(&lanes_[0], begun_at(0));
  run(10, 12);
  times_.begin(&lanes_[1], begun_at(11, 1));
  times_.close(&lanes_[1], at(15));
  ASSERT_THAT(taken(20).jobs, SizeIs(3));
  EXPECT_TRUE(taken_.jobs[0].is_aborted);
  EXPECT_EQ(taken_.jobs[0].end(), at(10));
  EXPECT_FALSE(taken_.jobs[1].is_aborted);
  EXPECT_TRUE(taken_.jobs[2].is_aborted);
}

TEST_F(JobTimesTest, OfABusyLaneTheOldestJobsAreForgottenAndNoneOfAnotherLane) {
  run(0, 1, 1);
  for (std::size_t i = 0; i <= JobTimes::kMostOfLane; ++i) run(static_cast<std::int64_t>(i), 1 + static_cast<int>(i));
  taken(1'000'000);
  EXPECT_TRUE(taken_.has_forgotten);
  EXPECT_THAT(taken_.jobs, SizeIs(1 + JobTimes::kMostOfLane / 2 + 1));
  EXPECT_FALSE(taken(1'000'001).has_forgotten);
}

TEST_F(JobTimesTest, AFrozenEpochIsOneSpanUntilTheNextOneBegins) {
  times_.freeze(at(5));
  times_.freeze(at(7));
  ASSERT_THAT(taken(20).frozen, SizeIs(1));
  EXPECT_EQ(taken_.frozen[0].begin, at(5));
  EXPECT_EQ(taken_.frozen[0].end, at(20));
  times_.thaw(at(30));
  times_.thaw(at(31));
  ASSERT_THAT(taken(40).frozen, SizeIs(1));
  EXPECT_EQ(taken_.frozen[0].end, at(30));
}

TEST_F(JobTimesTest, AFreezeAbortsWhatRuns) {
  times_.begin(&lanes_[0], begun_at(0));
  times_.freeze(at(5));
  times_.end(&lanes_[0], 0, at(50));
  ASSERT_THAT(taken(60).jobs, SizeIs(1));
  EXPECT_TRUE(taken_.jobs[0].is_aborted);
  EXPECT_EQ(taken_.jobs[0].end(), at(5));
}

TEST_F(JobTimesTest, OffNothingIsStored) {
  JobTimes off(false);
  off.begin(&lanes_[0], begun_at(0));
  off.end(&lanes_[0], 0, at(1));
  off.freeze(at(0));
  off.take(at(2), taken_);
  EXPECT_THAT(taken_.jobs, IsEmpty());
  EXPECT_THAT(taken_.frozen, IsEmpty());
}

}  // namespace
}  // namespace horo::test
