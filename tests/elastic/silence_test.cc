// Silence: a member is given up for it only if another one waits, and never by a process that has not run itself.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "horo/base/awake_clock.h"
#include "tests/elastic/membership_driver.h"

namespace horo {
namespace {

using std::chrono::milliseconds;
using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;
using testing::SizeIs;

using Ids = std::vector<MemberId>;

constexpr milliseconds kLimit{10'000}, kPark{60'000};

MembershipDriver all_running(MemberId members, int min_members) {
  MembershipDriver job(static_cast<int>(members), min_members);
  for (MemberId id = 0; id < members; ++id) job.installed({id}, 0);
  return job;
}

TEST(Silence, AStoppedMemberIsToldAtOnceAndMissedAfterTheLimit) {
  MembershipDriver job = all_running(3, 1);
  job.stopped(2);
  EXPECT_THAT(job.story, ElementsAre("rank 2 is stopped; if it does not continue within 10 s, it is evicted when "
                                     "another rank waits for it"));
  job.after(kLimit - milliseconds(1));
  EXPECT_THAT(job.inbox, IsEmpty());
  EXPECT_EQ(job.membership.next_deadline(), job.now + milliseconds(1));
  job.after(milliseconds(1));
  for (const MemberId id : {0U, 1U}) EXPECT_THAT(job.got<Missed>(id), ElementsAre(Missed{{2}}));
  EXPECT_THAT(job.inbox[2], IsEmpty());
}

TEST(Silence, NoMemberIsEvictedWhileNoneWaits) {
  MembershipDriver job = all_running(4, 1);
  job.stopped(3);
  job.unheard({1, 2});
  job.after(100 * kPark);
  for (const MemberId id : {1U, 2U, 3U}) EXPECT_FALSE(job.membership.is_out(id));
  EXPECT_THAT(job.end, IsEmpty());
  EXPECT_EQ(job.membership.next_deadline(), std::nullopt);
}

TEST(Silence, AllThatAreMissedAreEvictedWhenAMemberFreezes) {
  MembershipDriver job = all_running(5, 1);
  job.stopped(3);
  job.unheard({1, 2});
  job.after(kLimit);
  job.froze(0, 0, 1);
  EXPECT_THAT(job.got<Evicted>(3)[0].reason, HasSubstr("it was stopped for 10 s, and the other ranks went on"));
  for (const MemberId id : {1U, 2U})
    EXPECT_THAT(job.got<Evicted>(id)[0].reason, HasSubstr("it did not answer for 10 s"));
  job.froze(4, 0);
  EXPECT_EQ(job.membership.members(), (Ids{0, 4}));
}

TEST(Silence, AMemberIsMissedNoLongerWhenItIsBack) {
  MembershipDriver job = all_running(4, 1);
  job.stopped(3);
  job.unheard({1});
  job.after(kLimit);
  job.heard({1});
  job.continued(3);
  EXPECT_THAT(job.got<Missed>(0), ElementsAre(Missed{{1}}, Missed{{1, 3}}, Missed{{3}}, Missed{}));
  job.froze(0, 0, 1);
  for (const MemberId id : {1U, 2U, 3U}) job.froze(id, 0);
  EXPECT_EQ(job.membership.members(), (Ids{0, 1, 2, 3}));
}

TEST(Silence, AMemberThatHangsIsEvictedAfterTheLimit) {
  MembershipDriver job = all_running(3, 1);
  job.died(2);
  job.froze(0, 0);
  job.after(kLimit - milliseconds(1));
  EXPECT_THAT(job.got<Evicted>(1), IsEmpty());
  job.after(milliseconds(1));
  EXPECT_THAT(job.got<Evicted>(1), SizeIs(1));
  EXPECT_EQ(job.membership.members(), (Ids{0}));
}

TEST(Silence, TheLastMemberIsNeverGivenUp) {
  for (const bool is_stopped : {false, true}) {
    MembershipDriver job = all_running(3, 1);
    job.sent(0, Leave{false, ""});
    job.died(1);
    if (is_stopped) job.stopped(2);
    if (!is_stopped) job.unheard({2});
    job.after(100 * kPark);
    EXPECT_FALSE(job.membership.is_out(2));
    EXPECT_THAT(job.end, IsEmpty());
  }
}

TEST(Silence, AMemberThatIsStoppedOrUnheardItselfDoesNotWait) {
  MembershipDriver job = all_running(4, 1);
  job.froze(0, 0, 1);
  job.froze(2, 0, 1);
  job.stopped(0);
  job.unheard({2});
  job.after(10 * kLimit);
  for (MemberId id = 0; id < 4; ++id) EXPECT_FALSE(job.membership.is_out(id));
  job.froze(3, 0);
  for (MemberId id = 0; id < 3; ++id) EXPECT_TRUE(job.membership.is_evicted(id));
  EXPECT_EQ(job.membership.members(), (Ids{3}));
}

TEST(Silence, AJobWhoseMembersAreAllStoppedWaits) {
  MembershipDriver job = all_running(2, 1);
  for (const MemberId id : {0U, 1U}) job.stopped(id);
  job.after(10 * kLimit);
  job.continued(0);
  job.after(kLimit - milliseconds(1));
  job.froze(0, 0, 1);
  EXPECT_THAT(job.got<Evicted>(1), IsEmpty());
  job.after(milliseconds(1));
  EXPECT_THAT(job.got<Evicted>(1), SizeIs(1));
}

TEST(Silence, AMemberThatIsStartingHasLonger) {
  MembershipDriver job(3, 1);
  job.installed({0}, 0);
  job.died(2);
  job.froze(0, 0);
  job.after(milliseconds(119'000));
  EXPECT_FALSE(job.membership.is_out(1));
  job.froze(1, 0);
  EXPECT_EQ(job.membership.members(), (Ids{0, 1}));
}

TEST(Silence, ContinuingAndBeingHeardGiveTimeToAnswer) {
  MembershipDriver job = all_running(4, 1);
  job.died(2);
  job.froze(0, 0);
  job.stopped(1);
  job.after(kLimit - milliseconds(1'000));
  job.continued(1);
  job.heard({3});
  job.after(kLimit - milliseconds(1'000));
  for (const MemberId id : {1U, 3U}) EXPECT_THAT(job.got<Evicted>(id), IsEmpty());
}

// ---- Too few without the silent ones.

TEST(Silence, SilentMembersAreWaitedForIfTooFewAreLeftWithoutThem) {
  MembershipDriver job = all_running(3, 3);
  job.unheard({2});
  job.froze(0, 0, 2);
  job.froze(1, 0);
  EXPECT_TRUE(job.membership.is_parked());
  for (const MemberId id : {0U, 1U}) EXPECT_EQ(job.got<Parked>(id).back(), (Parked{2, 3}));
  EXPECT_THAT(job.story, Contains("rank 2 does not answer; without it 2 are left, fewer than --min-np 3: parked for up "
                                  "to 60 s"));
  job.after(kPark - milliseconds(1));
  EXPECT_THAT(job.end, IsEmpty());
  job.heard({2});
  EXPECT_FALSE(job.membership.is_parked());
  job.froze(2, 0);
  EXPECT_EQ(job.membership.members(), (Ids{0, 1, 2}));
  EXPECT_EQ(job.membership.epoch(), 1U);
}

TEST(Silence, AParkedJobEndsIfTheyDoNotComeBack) {
  MembershipDriver job = all_running(3, 2);
  job.stopped(1);
  job.died(2);
  job.froze(0, 0);
  job.after(kLimit);
  EXPECT_THAT(job.got<Settle>(0), IsEmpty());  // the progress of rank 1 may be less
  job.after(kPark);
  EXPECT_THAT(job.got<Settle>(0), SizeIs(1));
  ASSERT_THAT(job.end, SizeIs(1));
  EXPECT_THAT(job.end[0], HasSubstr("rank 0 is left of 3, fewer than --min-np 2, and no other came back within"));
}

TEST(Silence, AParkedJobEndsAtOnceWhenAnotherMemberDies) {
  MembershipDriver job = all_running(3, 2);
  job.stopped(2);
  job.after(kLimit);
  job.unheard({1});
  job.froze(0, 0, 1);
  EXPECT_TRUE(job.membership.is_parked());
  job.died(2);
  EXPECT_THAT(job.end, IsEmpty());
  job.died(1);
  EXPECT_THAT(job.end, SizeIs(1));
}

TEST(Silence, TheTimeInWhichNoMemberWaitsIsNoneOfAParkedJob) {
  MembershipDriver job = all_running(3, 3);
  job.unheard({2});
  job.froze(0, 0, 2);
  job.froze(1, 0);
  for (int turn = 0; turn < 2; ++turn) {
    job.after(kPark / 2 - milliseconds(1));
    for (const MemberId id : {0U, 1U}) job.stopped(id);
    job.after(10 * kPark);
    EXPECT_TRUE(job.membership.is_parked());
    for (const MemberId id : {0U, 1U}) job.continued(id);
    EXPECT_THAT(job.end, IsEmpty());
  }
  EXPECT_THAT(job.story, Not(Contains(HasSubstr("answer again"))));
  job.after(milliseconds(2));
  EXPECT_THAT(job.end, SizeIs(1));
}

TEST(Silence, NoEpochBeginsWithASilentMemberThatHadFrozen) {
  MembershipDriver job = all_running(3, 3);
  job.froze(2, 0, 1);
  job.unheard({2});
  job.froze(0, 0);
  ASSERT_TRUE(job.membership.is_parked());
  job.froze(1, 0);
  EXPECT_TRUE(job.membership.is_parked());
  EXPECT_EQ(job.membership.epoch(), 0U);
  job.heard({2});
  EXPECT_EQ(job.story.rbegin()[1], "the ranks that were missed answer again");
  EXPECT_EQ(job.membership.epoch(), 1U);
}

// ---- The caller did not run.

TEST(Silence, APauseOfTheCallerIsNoSilenceOfItsMembers) {
  MembershipDriver job = all_running(4, 3);
  job.stopped(3);
  job.froze(0, 0);
  job.now += 100 * kPark;
  job.membership.count_from(job.now);
  job.after(kLimit - milliseconds(1));
  EXPECT_THAT(job.inbox[1], SizeIs(1));  // Freeze
  EXPECT_THAT(job.got<Evicted>(3), IsEmpty());
  job.after(milliseconds(1));
  EXPECT_TRUE(job.membership.is_parked());
  job.now += 100 * kPark;
  job.membership.count_from(job.now);
  job.after(kPark - milliseconds(1));
  EXPECT_THAT(job.end, IsEmpty());
  EXPECT_THAT(job.story, Not(Contains(HasSubstr("answer again"))));
  for (const MemberId id : {1U, 2U}) job.froze(id, 0);
  EXPECT_EQ(job.membership.members(), (Ids{0, 1, 2}));
}

TEST(Silence, APauseOfTheCallerEndsNoWindowOfMembersThatFailAlike) {
  MembershipDriver job = all_running(3, 1);
  job.sent(0, Leave{true, "ValueError", "ValueError at train.py:7"});
  for (const MemberId id : {1U, 2U}) job.froze(id, 0);
  job.now += kPark;
  job.membership.count_from(job.now);
  job.after(milliseconds(999));
  EXPECT_EQ(job.membership.epoch(), 0U);
}

TEST(AwakeClock, ALateTurnIsAPauseAndSilenceCountsFromItsEnd) {
  AwakeClock clock(milliseconds(2'000));
  TimePoint now = TimePoint{} + kPark;
  EXPECT_FALSE(clock.look(now));
  EXPECT_EQ(clock.since(), TimePoint::min());
  EXPECT_FALSE(clock.look(now += milliseconds(2'000)));
  EXPECT_TRUE(clock.is_awake(now + milliseconds(2'000)));
  EXPECT_FALSE(clock.is_awake(now + milliseconds(2'001)));
  EXPECT_TRUE(clock.look(now += milliseconds(2'001)));
  EXPECT_EQ(clock.since(), now);
  EXPECT_FALSE(clock.look(now));
}

TEST(AwakeClock, ALoopThatWaitsForNothingMayRest) {
  AwakeClock clock(milliseconds(2'000));
  clock.look(TimePoint{});
  clock.rest();
  EXPECT_FALSE(clock.look(TimePoint{} + kPark));
}

TEST(AwakeClock, HalfOfALimitIsTheMostThatPassesUnseen) {
  for (const auto& [limit, longest] : {std::pair(300, 250), std::pair(1'000, 500), std::pair(60'000, 2'000)}) {
    AwakeClock clock = AwakeClock::for_limit(milliseconds(limit));
    clock.look(TimePoint{});
    EXPECT_TRUE(clock.is_awake(TimePoint{} + milliseconds(longest)));
    EXPECT_FALSE(clock.is_awake(TimePoint{} + milliseconds(longest + 1)));
  }
}

}  // namespace
}  // namespace horo
