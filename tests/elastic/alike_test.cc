// Members that fail in the same way, and what frozen members deliver before the decision.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/elastic/membership_driver.h"

namespace horo {
namespace {

using std::chrono::milliseconds;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;

const std::string kFailure = "KeyError at train.py:17 in main";

void fails(MembershipDriver& job, MemberId id, const std::string& failure = kFailure) {
  job.sent(id, Leave{true, "rank " + std::to_string(id) + " ended by an exception", failure});
}

MembershipDriver running(int members, int min_members) {
  MembershipDriver job(members, min_members);
  for (int id = 0; id < members; ++id) job.installed({static_cast<MemberId>(id)}, 0);
  return job;
}

TEST(FailAlike, OneLineTellsItAndNoEpochBegins) {
  MembershipDriver job = running(4, 2);
  for (const MemberId id : {2U, 0U, 3U, 1U}) {
    fails(job, id);
    job.now += milliseconds(50);
  }
  EXPECT_TRUE(job.membership.is_over());
  EXPECT_THAT(job.story, ElementsAre("all 4 ranks failed in the same way: " + kFailure));
  EXPECT_EQ(job.membership.epoch(), 0U);
  EXPECT_THAT(job.membership.judged_members(), SizeIs(4));
}

TEST(FailAlike, FrozenMembersSettleAndMayFailToo) {
  MembershipDriver job = running(4, 2);
  fails(job, 0);
  for (const MemberId id : {1U, 2U}) job.froze(id, 0);
  EXPECT_THAT(job.got<Settle>(1), IsEmpty());
  job.froze(3, 0);
  const Settle settle{0, {{1, {{0, 11}}}, {2, {{0, 12}}}, {3, {{0, 13}}}}};
  for (const MemberId id : {1U, 2U, 3U}) EXPECT_THAT(job.got<Settle>(id), ElementsAre(settle));
  EXPECT_THAT(job.got<View>(1), IsEmpty());
  for (const MemberId id : {1U, 2U, 3U}) fails(job, id);
  EXPECT_THAT(job.story, ElementsAre("all 4 ranks failed in the same way: " + kFailure));
}

TEST(FailAlike, TheOthersGoOnAfterTheWindow) {
  MembershipDriver job = running(3, 1);
  fails(job, 1);
  job.froze(0, 0);
  job.froze(2, 0);
  EXPECT_EQ(job.membership.next_deadline(), job.now + milliseconds(1000));
  job.after(milliseconds(999));
  EXPECT_EQ(job.membership.epoch(), 0U);
  job.after(milliseconds(1));
  EXPECT_THAT(job.got<Settle>(0), SizeIs(1));
  EXPECT_THAT(job.got<View>(0), SizeIs(1));
  EXPECT_EQ(job.membership.next_deadline(), std::nullopt);
}

TEST(FailAlike, EachFailureBeginsTheWindowAnew) {
  MembershipDriver job = running(4, 1);
  fails(job, 1);
  job.froze(0, 0);
  job.froze(2, 0);
  job.after(milliseconds(800));
  fails(job, 3);
  job.after(milliseconds(999));
  EXPECT_EQ(job.membership.epoch(), 0U);
  job.after(milliseconds(1));
  EXPECT_EQ(job.membership.epoch(), 1U);
}

TEST(FailAlike, AnotherEndOrFailureIsNotWaitedFor) {
  MembershipDriver died = running(4, 1), differs = running(4, 1), unknown = running(4, 1);
  fails(died, 1);
  died.died(2);
  fails(differs, 1);
  fails(differs, 2, "KeyError at train.py:18 in main");
  fails(unknown, 1, "");
  for (MembershipDriver* job : {&died, &differs, &unknown}) {
    for (const MemberId id : {0U, 3U}) job->froze(id, 0);
    if (job == &unknown) job->froze(2, 0);
    EXPECT_EQ(job->membership.epoch(), 1U);
    EXPECT_THAT(job->got<Settle>(0), IsEmpty());
  }
}

TEST(FailAlike, TooFewMembersSettleBeforeTheJobEnds) {
  MembershipDriver job = running(2, 2);
  job.died(0);
  job.froze(1, 0);
  ASSERT_THAT(job.inbox[1], SizeIs(2));
  EXPECT_TRUE(std::holds_alternative<Settle>(job.inbox[1][1]));
  EXPECT_THAT(job.end, SizeIs(1));
}

TEST(FailAlike, TheLastOfTwoFailsAfterItHasSettledBeforeTheJobEnds) {
  MembershipDriver job = running(2, 2);
  fails(job, 0);
  job.froze(1, 0);
  EXPECT_THAT(job.got<Settle>(1), SizeIs(1));
  EXPECT_THAT(job.end, IsEmpty());
  job.now += milliseconds(100);
  fails(job, 1);
  EXPECT_THAT(job.story, ElementsAre("all 2 ranks failed in the same way: " + kFailure));
}

TEST(FailAlike, MembersThatWereLostBeforeAreNotCounted) {
  MembershipDriver job = running(3, 1);
  job.died(2);
  job.froze(0, 0);
  job.froze(1, 0);
  job.installed({0, 1}, 1);
  fails(job, 0);
  fails(job, 1);
  EXPECT_EQ(job.story.back(), "all 2 ranks that were left failed in the same way: " + kFailure);
}

TEST(FailAlike, AJobOfTooFewMembersEndsAfterTheWindow) {
  MembershipDriver job = running(3, 3);
  fails(job, 0);
  job.froze(1, 0);
  job.froze(2, 0);
  job.after(milliseconds(999));
  EXPECT_THAT(job.end, IsEmpty());
  job.after(milliseconds(1));
  EXPECT_THAT(job.end, ElementsAre(HasSubstr("rank 0 failed")));
}

}  // namespace
}  // namespace horo
