// Which ends of members decide the job's, and members that fail after they have left.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/elastic/membership_driver.h"

namespace horo {
namespace {

using std::chrono::milliseconds;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

using Ids = std::vector<MemberId>;

TEST(MemberEnds, TheEndsOfTheSurvivorsDecideTheJobs) {
  MembershipDriver job(4, 2);
  job.died(2);
  for (const MemberId id : {0U, 1U, 3U}) job.froze(id, 0);
  EXPECT_EQ(job.membership.judged_members(), (Ids{0, 1, 3}));
  job.sent(0, Leave{false, ""});
  job.died(3);
  job.sent(1, Leave{false, ""});
  EXPECT_EQ(job.membership.judged_members(), (Ids{0, 1}));
}

TEST(MemberEnds, TheEndOfAMemberThatLeftLongAgoDecidesToo) {
  MembershipDriver job(3, 1);
  job.installed({0, 1, 2}, 0);
  job.sent(0, Leave{});
  job.froze(1, 0, 0);
  job.froze(2, 0, 0);
  job.died(2);
  EXPECT_EQ(job.membership.judged_members(), (Ids{0, 1}));
}

TEST(MemberEnds, TheEndsOfAllMembersThatEverWereDecideIfTooFewAreLeft) {
  MembershipDriver job(3, 2);
  job.installed({0, 1, 2}, 0);
  job.died(2);
  job.froze(0, 0);
  job.froze(1, 0);
  EXPECT_EQ(job.membership.judged_members(), (Ids{0, 1}));
  job.died(1);
  EXPECT_EQ(job.membership.judged_members(), (Ids{0, 1, 2}));
}

TEST(MemberEnds, AMemberThatLeftAndThenFailedIsLostAndDoesNotCount) {
  MembershipDriver job(3, 3);
  job.installed({0, 1, 2}, 0);
  job.sent(0, Leave{});
  job.froze(1, 0, 0);
  job.sent(0, Leave{true, "exit code 3", "exit code 3"});
  EXPECT_EQ(job.membership.state_of(0).word, "failed");
  job.froze(2, 0, 0);
  EXPECT_THAT(job.got<View>(1), IsEmpty());
  job.after(milliseconds(1'000));
  EXPECT_THAT(job.end, ElementsAre(HasSubstr("rank 0 failed (exit code 3); ranks 1, 2 are left of 3, fewer than")));
}

TEST(MemberEnds, AFailureAfterTheEpochOfTheMemberEndsALaterOneIfTooFewAreLeft) {
  for (const int least : {2, 3}) {
    MembershipDriver job(3, least);
    job.installed({0, 1, 2}, 0);
    job.sent(0, Leave{});
    job.froze(1, 0, 0);
    job.froze(2, 0, 0);
    job.installed({1, 2}, 1);
    job.sent(0, Leave{true, "exit code 3", "exit code 3"});
    EXPECT_EQ(job.got<Freeze>(1).size(), least == 2 ? 0U : 1U);
    EXPECT_EQ(job.story.back() == "rank 0 failed (exit code 3)", least == 2);
    job.froze(1, 1);
    job.froze(2, 1);
    EXPECT_EQ(job.end.size(), least == 3 ? 1U : 0U);
  }
}

TEST(MemberEnds, AFailureOfTheLastMemberThatLeftIsTold) {
  MembershipDriver job(2, 2);
  for (const MemberId id : {0U, 1U}) job.sent(id, Leave{});
  EXPECT_TRUE(job.membership.is_over());
  job.sent(1, Leave{true, "exit code 3", "exit code 3"});
  EXPECT_THAT(job.story, ElementsAre("rank 1 failed (exit code 3)"));
  EXPECT_EQ(job.membership.judged_members(), (Ids{0, 1}));
}

TEST(MemberEnds, TheEndsOfAllMembersDecideIfTooFewSurvive) {
  MembershipDriver job(2, 1);
  job.sent(0, Leave{true, "ValueError"});
  job.sent(1, Leave{true, "ValueError"});
  EXPECT_EQ(job.membership.judged_members(), (Ids{0, 1}));
  EXPECT_THAT(job.story, ElementsAre("rank 0 failed (ValueError)", "rank 1 failed (ValueError)"));
}

}  // namespace
}  // namespace horo
