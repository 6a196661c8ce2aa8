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

// After the death of rank 0, ranks 1, 2 and 3 are ranks 0, 1 and 2 of the epoch.
MembershipDriver without_rank_0() {
  MembershipDriver job(4, 1);
  job.installed({0, 1, 2, 3}, 0);
  job.died(0);
  for (const MemberId id : {1U, 2U, 3U}) job.froze(id, 0);
  job.installed({1, 2, 3}, 1);
  job.story.clear();
  return job;
}

TEST(MemberEnds, EachLineOfTheStoryHasOneNumberOfARank) {
  MembershipDriver failed = without_rank_0();
  failed.sent(2, Leave{true, "rank 1 (host a, rank 2 at the start) ended by an exception at x.py:3: E: no", "E"});
  for (const MemberId id : {1U, 3U}) failed.froze(id, 1);
  failed.after(milliseconds(1'000));
  EXPECT_THAT(failed.story, ElementsAre("rank 2 failed (host a: an exception at x.py:3: E: no); epoch 2 has ranks 1, 3 "
                                        "as ranks 0, 1"));
  EXPECT_EQ(failed.got<View>(1)[1].reason,
            "rank 1 (rank 2 at the start) failed: rank 1 (host a, rank 2 at the start) ended by an exception at "
            "x.py:3: E: no");

  MembershipDriver missed = without_rank_0();
  missed.sent(1, Frozen{1, {}, 2, "rank 1 (host a) is lost", 0, 0, {}, {std::byte{1}}});
  for (const MemberId id : {2U, 3U}) missed.froze(id, 1);
  EXPECT_THAT(missed.story, ElementsAre("rank 2 (host a) is lost; epoch 2 has ranks 1, 2, 3 as ranks 0, 1, 2"));

  MembershipDriver broken = without_rank_0();
  for (const std::uint32_t epoch : {1U, 2U, 3U}) {
    broken.froze(2, epoch, 3);
    for (const MemberId id : {1U, 3U}) broken.froze(id, epoch);
  }
  EXPECT_EQ(broken.story[2], "rank 3 is evicted: it and rank 2 lost one another 3 times");
  EXPECT_EQ(broken.got<Evicted>(3)[0].reason,
            "rank 2 (rank 3 at the start) was evicted: it and rank 1 (rank 2 at the start) lost one another 3 times, "
            "and the other ranks went on without it");
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
