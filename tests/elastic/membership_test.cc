#include "elastic/membership.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/elastic/membership_driver.h"

namespace horo {
namespace {

using std::chrono::milliseconds;
using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;

using Ids = std::vector<MemberId>;

TEST(Membership, EveryOtherMemberFreezesAtADeath) {
  MembershipDriver job(4, 2);
  job.died(2);
  const Freeze freeze{0, 2, "rank 2 ended: signal 9 (SIGKILL)"};
  for (const MemberId id : {0U, 1U, 3U}) EXPECT_THAT(job.got<Freeze>(id), ElementsAre(freeze));
  EXPECT_THAT(job.got<Freeze>(2), IsEmpty());
}

TEST(Membership, EverySurvivorGetsTheViewWithTheProgressAndTheCardsOfAll) {
  MembershipDriver job(4, 2);
  job.died(2);
  job.froze(0, 0);
  job.froze(3, 0);
  EXPECT_THAT(job.got<View>(0), IsEmpty());
  job.froze(1, 0);
  View view{1, {0, 1, 3}, {}, {{0, {{0, 10}}}, {1, {{0, 11}}}, {3, {{0, 13}}}}, "rank 2 ended: signal 9 (SIGKILL)"};
  for (const MemberId id : {0U, 1U, 3U}) view.cards[id] = MembershipDriver::card_of(id, 0);
  for (const MemberId id : {0U, 1U, 3U}) EXPECT_THAT(job.got<View>(id), ElementsAre(view));
  EXPECT_EQ(job.membership.epoch(), 1U);
  EXPECT_EQ(job.membership.members(), (Ids{0, 1, 3}));
}

TEST(Membership, TheStoryNamesTheDeathTheRanksAndTheTime) {
  MembershipDriver job(4, 2);
  job.died(2);
  for (const MemberId id : {0U, 1U, 3U}) job.froze(id, 0);
  job.now += milliseconds(24);
  job.installed({0, 1, 3}, 1);
  EXPECT_THAT(job.story, ElementsAre("rank 2 died (signal 9 (SIGKILL)); epoch 1 has ranks 0, 1, 3 as ranks 0, 1, 2",
                                     "epoch 1 runs on all 3 members after 24 ms"));
}

TEST(Membership, ADeathIsTheReasonEvenIfAReportCameFirst) {
  MembershipDriver job(3, 1);
  job.froze(0, 0, 2);
  job.died(2);
  job.froze(1, 0);
  EXPECT_EQ(job.got<View>(0)[0].reason, "rank 2 ended: signal 9 (SIGKILL)");
}

TEST(Membership, TheFirstReportFreezesTheOthersOnce) {
  MembershipDriver job(3, 1);
  job.froze(0, 0, 2);
  EXPECT_THAT(job.got<Freeze>(0), IsEmpty());
  EXPECT_THAT(job.got<Freeze>(1), ElementsAre(Freeze{0, 2, "rank 0 saw it"}));
  EXPECT_THAT(job.got<Freeze>(2), ElementsAre(Freeze{0, 2, "rank 0 saw it"}));
  job.froze(1, 0, 2);
  job.died(2);
  EXPECT_THAT(job.got<Freeze>(2), SizeIs(1));
}

TEST(Membership, AReportOfAnOldEpochIsIgnored) {
  MembershipDriver job(3, 1);
  job.died(2);
  job.froze(0, 0);
  job.froze(1, 0);
  job.froze(0, 0);
  EXPECT_THAT(job.got<Freeze>(1), SizeIs(1));
  EXPECT_EQ(job.membership.epoch(), 1U);
}

TEST(Membership, AReportOfAnEpochThatDoesNotExistIsToldAndIgnored) {
  MembershipDriver job(2, 1);
  job.froze(0, 7);
  EXPECT_THAT(job.got<Freeze>(1), IsEmpty());
  EXPECT_THAT(job.story, ElementsAre(HasSubstr("epoch 7")));
}

TEST(Membership, ASecondReportOfAMemberChangesNothing) {
  MembershipDriver job(2, 1);
  job.froze(0, 0);
  job.sent(0, Frozen{0, {{0, 99}}, std::nullopt, ""});
  job.froze(1, 0);
  EXPECT_EQ(job.got<View>(0)[0].progress.at(0), (Progress{{0, 10}}));
}

TEST(Membership, ThreeDeathsAtOnceAreOneEpoch) {
  MembershipDriver job(5, 2);
  job.died(1);
  job.froze(0, 0);
  job.died(4);
  job.died(3);
  job.froze(2, 0);
  EXPECT_EQ(job.membership.members(), (Ids{0, 2}));
  EXPECT_EQ(job.membership.epoch(), 1U);
}

TEST(Membership, ADeathOfAFrozenMemberIsInTheDecision) {
  MembershipDriver job(4, 1);
  job.died(3);
  job.froze(0, 0);
  job.froze(1, 0);
  job.died(1);
  job.froze(2, 0);
  ASSERT_THAT(job.got<View>(0), SizeIs(1));
  EXPECT_EQ(job.got<View>(0)[0].members, (Ids{0, 2}));
  EXPECT_FALSE(job.got<View>(0)[0].progress.contains(1));
}

TEST(Membership, ADeathDuringTheInstallationEndsTheNewEpoch) {
  MembershipDriver job(3, 1);
  job.died(2);
  job.froze(0, 0);
  job.froze(1, 0);
  job.installed({0}, 1);
  job.died(1);
  EXPECT_EQ(job.got<Freeze>(0).back().epoch, 1U);
  job.froze(0, 1);
  EXPECT_EQ(job.membership.epoch(), 2U);
  job.now += milliseconds(7);
  job.installed({0}, 2);
  EXPECT_THAT(job.story, Contains("epoch 2 runs on its one member after 7 ms"));
}

TEST(Membership, BrokenLinksAloneKeepAllMembers) {
  MembershipDriver job(3, 2);
  for (const MemberId id : {0U, 1U, 2U}) job.froze(id, 0, (id + 1) % 3);
  EXPECT_EQ(job.membership.members(), (Ids{0, 1, 2}));
  EXPECT_EQ(job.membership.epoch(), 1U);
}

TEST(Membership, TheThirdBreakOfOnePairEvictsItsHigherMember) {
  MembershipDriver job(4, 2);
  for (std::uint32_t epoch = 0; epoch < 3; ++epoch) {
    EXPECT_THAT(job.membership.members(), SizeIs(4));
    job.froze(epoch == 1 ? 2 : 1, epoch, epoch == 1 ? 1 : 2);
    for (const MemberId id : {0U, 1U, 2U, 3U}) job.froze(id, epoch, 2);  // these repeat what they were told
  }
  EXPECT_EQ(job.membership.members(), (Ids{0, 1, 3}));
  EXPECT_THAT(job.got<Evicted>(2), SizeIs(1));
}

TEST(Membership, AReportThatNamesNoMemberDoesNotHideThePair) {
  MembershipDriver job(3, 1);
  for (const std::uint32_t epoch : {0U, 1U, 2U}) {
    job.froze(2, epoch);
    job.froze(0, epoch, 1);
    job.froze(1, epoch, 0);
  }
  EXPECT_EQ(job.membership.members(), (Ids{0, 2}));
  EXPECT_TRUE(job.membership.is_evicted(1));
}

TEST(Membership, ADeathBetweenBreaksStartsTheCountAnew) {
  MembershipDriver job(4, 2);
  for (std::uint32_t epoch = 0; epoch < 2; ++epoch) {
    for (const MemberId id : {1U, 0U, 2U, 3U}) job.froze(id, epoch, 2);
  }
  job.died(3);
  for (const MemberId id : {1U, 0U, 2U}) job.froze(id, 2, 2);
  for (const MemberId id : {1U, 0U, 2U}) job.froze(id, 3, 2);
  EXPECT_EQ(job.membership.members(), (Ids{0, 1, 2}));
}

TEST(Membership, ALeaveInGoodOrderFreezesNoMember) {
  MembershipDriver job(3, 2);
  job.installed({0}, 0);
  job.sent(0, Leave{false, ""});
  job.ended(0);
  EXPECT_THAT(job.inbox, IsEmpty());
  EXPECT_THAT(job.story, IsEmpty());
}

TEST(Membership, AMemberThatLeftIsNotWaitedForAndInNoLaterView) {
  MembershipDriver job(3, 2);
  job.sent(0, Leave{false, ""});
  job.froze(1, 0, 0);
  job.froze(2, 0, 0);
  EXPECT_EQ(job.membership.members(), (Ids{1, 2}));
  EXPECT_THAT(job.inbox[0], IsEmpty());
}

TEST(Membership, AFailedLeaveFreezesTheOthersWithItsText) {
  MembershipDriver job(3, 1);
  job.sent(1, Leave{true, "ValueError: \x1b[2Jno"});
  EXPECT_THAT(job.got<Freeze>(0), ElementsAre(Freeze{0, 1, "rank 1 failed: ValueError: \x1b[2Jno"}));
  job.froze(0, 0);
  job.froze(2, 0);
  EXPECT_EQ(job.story[0], "rank 1 failed (ValueError: \\x1b[2Jno); epoch 1 has ranks 0, 2 as ranks 0, 1");
}

TEST(Membership, AProcessThatEndsWithSuccessHasLeft) {
  MembershipDriver job(3, 1);
  job.installed({0}, 0);
  job.ended(0);
  EXPECT_THAT(job.inbox, IsEmpty());
}

TEST(Membership, ALeaveBeforeTheEpochIsInstalledFreezesTheOthers) {
  MembershipDriver job(3, 1);
  job.sent(0, Leave{false, ""});
  for (const MemberId id : {1U, 2U}) EXPECT_THAT(job.got<Freeze>(id), SizeIs(1));
}

TEST(Membership, MembersThatLeftInGoodOrderAreNotTooFew) {
  MembershipDriver job(3, 2);
  job.installed({0, 1, 2}, 0);
  for (const MemberId id : {0U, 1U}) job.sent(id, Leave{false, ""});
  job.froze(2, 0, 0);
  EXPECT_THAT(job.got<View>(2), SizeIs(1));
  EXPECT_FALSE(job.membership.is_parked());
}

TEST(Membership, AProcessThatEndsWithAFailureAfterItsLeaveIsNoDeath) {
  MembershipDriver job(3, 1);
  job.installed({1}, 0);
  job.sent(1, Leave{false, ""});
  job.died(1);
  EXPECT_THAT(job.inbox, IsEmpty());
}

TEST(Membership, TheJobIsOverWhenAllHaveLeft) {
  MembershipDriver job(2, 2);
  job.sent(0, Leave{false, ""});
  EXPECT_FALSE(job.membership.is_over());
  job.sent(1, Leave{false, ""});
  EXPECT_TRUE(job.membership.is_over());
  EXPECT_THAT(job.story, IsEmpty());
  EXPECT_THAT(job.end, IsEmpty());
  EXPECT_EQ(job.membership.judged_members(), (Ids{0, 1}));
}

TEST(Membership, AJobOfTooFewMembersEndsAtOnceWithTheReason) {
  MembershipDriver job(4, 2);
  for (const MemberId id : {1U, 2U, 3U}) job.died(id);
  job.froze(0, 0);
  EXPECT_THAT(job.got<Settle>(0), SizeIs(1));
  EXPECT_THAT(job.got<View>(0), IsEmpty());
  ASSERT_THAT(job.end, SizeIs(1));
  EXPECT_THAT(job.end[0], HasSubstr("rank 1 died (signal 9 (SIGKILL)), rank 2 died"));
  EXPECT_THAT(job.end[0], HasSubstr("rank 0 is left of 4, fewer than --min-np 2, and none can come back: start the job "
                                    "again"));
  EXPECT_TRUE(job.membership.is_over());
  EXPECT_EQ(job.membership.next_deadline(), std::nullopt);
}

TEST(Membership, WhatAnEvictedMemberSendsIsIgnored) {
  MembershipDriver job(3, 1);
  job.stopped(2);
  job.froze(0, 0);
  job.after(milliseconds(10'000));
  job.continued(2);
  job.froze(2, 0);
  job.froze(1, 0);
  EXPECT_EQ(job.membership.members(), (Ids{0, 1}));
  job.froze(2, 1);
  EXPECT_EQ(job.membership.epoch(), 1U);
  EXPECT_THAT(job.got<Freeze>(1), SizeIs(1));
}

}  // namespace
}  // namespace horo
