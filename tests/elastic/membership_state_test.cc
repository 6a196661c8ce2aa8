#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/elastic/membership_driver.h"

namespace horo {
namespace {

using testing::Each;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

TEST(MembershipState, TheStateOfEachMemberIsAWord) {
  MembershipDriver job(6, 3);
  const auto words = [&job] {
    std::vector<std::string> all;
    for (MemberId id = 0; id < 6; ++id) all.push_back(job.membership.state_of(id).word);
    return all;
  };
  EXPECT_THAT(words(), Each("starting"));
  EXPECT_FALSE(job.membership.state_of(0).can_answer);
  job.installed({0, 1, 2, 3, 4, 5}, 0);
  EXPECT_THAT(words(), Each("running"));
  job.stopped(5);
  job.died(1);
  job.sent(2, Leave{true, "no"});
  job.froze(0, 0);
  EXPECT_THAT(words(), ElementsAre("frozen", "died", "failed", "running", "running", "stopped"));
  EXPECT_TRUE(job.membership.state_of(0).can_answer);
  EXPECT_FALSE(job.membership.state_of(5).can_answer);
  job.froze(3, 0);
  job.froze(4, 0);
  job.after(MembershipConfig{}.silence_limit);
  EXPECT_THAT(words(), ElementsAre("installing", "died", "failed", "installing", "installing", "evicted"));
  job.installed({0, 3, 4}, 1);
  job.sent(4, Leave{});
  job.died(3);
  job.froze(0, 1);
  EXPECT_THAT(words(), ElementsAre("frozen", "died", "failed", "died", "left", "evicted"));
  EXPECT_EQ(job.membership.state_of(1).detail, "signal 9 (SIGKILL)");
  EXPECT_EQ(job.membership.state_of(2).detail, "no");
  EXPECT_THAT(job.membership.state_of(5).detail, HasSubstr("it was stopped for "));
}

TEST(MembershipState, ADrainedHostIsToldOnceWithItsMembersThatAreHere) {
  MembershipDriver job(5, 1, {0, 0, 1, 1, 1});
  job.installed({0, 1, 2, 3, 4}, 0);
  job.sent(4, Leave{});
  for (const MemberId id : {2U, 3U, 4U, 2U}) job.drained(id);
  EXPECT_THAT(job.story, ElementsAre("host 1 is drained (SIGTERM): ranks 2, 3 leave after their round"));
  EXPECT_THAT(job.inbox, IsEmpty());
  EXPECT_EQ(job.membership.state_of(1).detail, "");
  EXPECT_EQ(job.membership.state_of(2).detail, kDrained);
  EXPECT_EQ(job.membership.state_of(4).detail, "");
}

TEST(MembershipState, AMemberThatLeavesAfterItsNoticeIsNoDeathAndTheStoryTellsTheReason) {
  MembershipDriver job(3, 3);
  job.installed({0, 1, 2}, 0);
  job.drained(2);
  job.sent(2, Leave{false, kDrained});
  job.froze(0, 0, 2);
  job.froze(1, 0, 2);
  EXPECT_THAT(job.story, ElementsAre("the host is drained (SIGTERM): ranks 0, 1, 2 leave after their round",
                                     "rank 2 left (drained); epoch 1 has ranks 0, 1"));
  EXPECT_EQ(job.membership.state_of(2).word, "left");
  EXPECT_EQ(job.membership.state_of(2).detail, kDrained);
}

TEST(MembershipState, TheReasonOfALeaveSurvivesTheDecisionMaker) {
  MembershipDriver job(2, 1);
  job.installed({0, 1}, 0);
  job.sent(1, Leave{false, kDrained});
  MembershipConfig config;
  config.members = 2;
  JobMembership next(config, job.membership.snapshot(), job.now);
  EXPECT_EQ(next.state_of(1).detail, kDrained);
  const auto actions = next.on(MemberSent{0, Frozen{0, {}, 1, "rank 1 has left", 0, 0, {}, {std::byte{1}}}}, job.now);
  const auto is_told = [](const MembershipAction& action) {
    const auto* say = std::get_if<Say>(&action);
    return say != nullptr && say->text == "rank 1 left (drained); epoch 1 has rank 0";
  };
  EXPECT_EQ(std::count_if(actions.begin(), actions.end(), is_told), 1);
}

TEST(MembershipState, AReportIsNoEvidence) {
  MembershipDriver job(2, 1);
  job.installed({0, 1}, 0);
  job.sent(1, Report{7, 1, 2, 3, "layer"});
  EXPECT_THAT(job.story, IsEmpty());
  EXPECT_TRUE(job.inbox.empty());
  EXPECT_EQ(job.membership.epoch(), 0U);
}

}  // namespace
}  // namespace horo
