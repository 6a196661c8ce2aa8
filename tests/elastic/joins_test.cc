// The rules of joins in docs/protocol.md, by hand: three members, and processes 3, 4, ... that are started later.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/elastic/membership_driver.h"

namespace horo {
namespace {

using namespace std::chrono_literals;
using testing::Contains;
using testing::HasSubstr;

class ElasticJoins : public testing::Test {
 protected:
  static MembershipConfig config_of(int min_members, int max_members) {
    MembershipConfig config;
    config.members = 3;
    config.min_members = min_members;
    config.max_members = max_members;
    return config;
  }
  void SetUp() override { begin(job); }
  static void begin(MembershipDriver& job) {
    job.installed({0, 1, 2}, 0);
    for (const MemberId id : {0, 1, 2}) job.sent(id, CanGrow{"a=1\n"});
  }
  static void ready(MembershipDriver& job, MemberId id) { job.sent(id, Ready{"a=1\n", {std::byte(id)}}); }
  static void at_border(MembershipDriver& job, const std::vector<MemberId>& ids, std::uint32_t epoch) {
    for (const MemberId id : ids) {
      Frozen frozen{epoch, {{0, 10}}, std::nullopt, ""};
      frozen.card = MembershipDriver::card_of(id, epoch);
      frozen.at_border = true;
      frozen.sets = {std::byte{7}};
      job.sent(id, frozen);
    }
  }
  static void join(MembershipDriver& job, MemberId id) {
    job.started(id);
    ready(job, id);
    at_border(job, job.membership.members(), job.membership.epoch());
  }

  MembershipDriver job{config_of(1, 5)};
};

TEST_F(ElasticJoins, AReadyProcessIsInTheViewOfABorder) {
  job.started(3);
  EXPECT_EQ(job.membership.state_of(3).word, "starting");
  EXPECT_TRUE(job.got<Grow>(0).empty());
  ready(job, 3);
  EXPECT_EQ(job.membership.state_of(3).word, "ready");
  for (const MemberId id : {0, 1, 2}) EXPECT_THAT(job.got<Grow>(id), testing::ElementsAre(Grow{{3}}));
  at_border(job, {0, 1}, 0);
  EXPECT_TRUE(job.got<Freeze>(2).empty());
  job.now += 20ms;
  at_border(job, {2}, 0);
  const std::vector<View> views = job.got<View>(3);
  ASSERT_EQ(views.size(), 1U);
  EXPECT_EQ(views[0].members, (std::vector<MemberId>{0, 1, 2, 3}));
  EXPECT_EQ(views[0].joined, std::vector<MemberId>{3});
  EXPECT_TRUE(views[0].at_border);
  EXPECT_EQ(views[0].sets, std::vector<std::byte>{std::byte{7}});
  EXPECT_EQ(views[0].cards.at(3), Card{std::byte{3}});
  EXPECT_EQ(views[0].progress.size(), 3U);
  EXPECT_EQ(job.got<View>(0), views);
  EXPECT_EQ(job.membership.state_of(3).word, "joining");
  job.now += 40ms;
  job.installed({0, 1, 2, 3}, 1);
  job.now += 3ms;
  job.sent(3, Synced{1, "256 MiB from ranks 0 to 2 in 3 ms"});
  EXPECT_EQ(job.membership.state_of(3).word, "running");
  EXPECT_THAT(job.story, Contains("rank 3 is ready"));
  EXPECT_THAT(job.story, Contains("epoch 1 has ranks 0, 1, 2, 3: rank 3 joins"));
  EXPECT_THAT(job.story, Contains("epoch 1 runs on all 4 members after 60 ms"));
  EXPECT_THAT(job.story, Contains("rank 3 has joined: 256 MiB from ranks 0 to 2 in 3 ms; the others waited 63 ms"));
}

TEST_F(ElasticJoins, ADeathBeforeTheBorderGivesAViewWithoutTheJoiner) {
  job.started(3);
  ready(job, 3);
  at_border(job, {0}, 0);
  job.died(2);
  EXPECT_EQ(job.got<Freeze>(1).size(), 1U);
  job.froze(1, 0);
  const View view = job.got<View>(0).at(0);
  EXPECT_EQ(view.members, (std::vector<MemberId>{0, 1}));
  EXPECT_FALSE(view.at_border);
  job.installed({0, 1}, 1);
  EXPECT_EQ(job.got<Grow>(0).size(), 2U) << "the growth is told anew";
}

TEST_F(ElasticJoins, TheRestIsAskedToFreezeWhenItDoesNotComeToTheBorder) {
  job.started(3);
  ready(job, 3);
  at_border(job, {0, 1}, 0);
  EXPECT_LE(job.membership.next_deadline(), job.now + 1s);
  job.after(999ms);
  EXPECT_TRUE(job.got<Freeze>(2).empty());
  job.after(1ms);
  EXPECT_EQ(job.got<Freeze>(2).size(), 1U);
}

TEST_F(ElasticJoins, NoMemberIsToldToGrowBeforeAllHaveSaidThatTheyCan) {
  MembershipDriver other(config_of(1, 5));
  other.installed({0, 1, 2}, 0);
  other.sent(0, CanGrow{"a=1\n"});
  other.sent(1, CanGrow{"a=1\n"});
  EXPECT_FALSE(other.membership.can_grow());
  other.started(3);
  ready(other, 3);
  EXPECT_TRUE(other.got<Grow>(0).empty());
  other.sent(2, CanGrow{"a=1\n"});
  EXPECT_TRUE(other.membership.can_grow());
  EXPECT_EQ(other.got<Grow>(0).size(), 1U);
}

TEST_F(ElasticJoins, AJoinerThatDiffersIsRefusedByNameAndHurtsNobody) {
  job.started(3);
  job.sent(3, Ready{"a=2\n", {}});
  ASSERT_EQ(job.got<Evicted>(3).size(), 1U);
  EXPECT_EQ(job.got<Evicted>(3)[0].reason, "rank 3 cannot join: a is 2 here and 1 on the ranks that it joins");
  EXPECT_TRUE(job.membership.is_evicted(3));
  EXPECT_TRUE(job.inbox[0].empty());
  EXPECT_EQ(job.membership.judged_members(), (std::vector<MemberId>{0, 1, 2}));
}

TEST_F(ElasticJoins, TheDeathOfAProcessOutsideOfAllViewsIsOneLine) {
  job.started(3);
  ready(job, 3);
  at_border(job, {0, 1}, 0);
  job.died(3);
  EXPECT_THAT(job.story.back(), "rank 3 died (signal 9 (SIGKILL)) before it joined");
  EXPECT_TRUE(job.got<Freeze>(2).empty());
  at_border(job, {2}, 0);
  const View view = job.got<View>(0).at(0);
  EXPECT_EQ(view.members, (std::vector<MemberId>{0, 1, 2}));
  EXPECT_TRUE(view.at_border) << "the request for the growth is done";
}

TEST_F(ElasticJoins, AStoppedJoinerIsNotAdded) {
  job.started(3);
  ready(job, 3);
  job.stopped(3);
  EXPECT_EQ(job.got<Grow>(0).back(), Grow{}) << "none is ready any more";
  job.continued(3);
  EXPECT_EQ(job.got<Grow>(0).back(), Grow{{3}});
  job.stopped(3);
  at_border(job, {0, 1, 2}, 0);
  EXPECT_TRUE(job.got<View>(3).empty());
}

TEST_F(ElasticJoins, AJobWithoutAMemberThatHasTheStateEnds) {
  join(job, 3);
  for (const MemberId id : {0, 1, 2}) job.died(id);
  job.froze(3, 1);
  ASSERT_EQ(job.end.size(), 1U);
  EXPECT_THAT(job.end[0], HasSubstr("no rank that is left has the state"));
  EXPECT_EQ(job.got<View>(3).size(), 1U);
}

TEST_F(ElasticJoins, AMemberThatHasJoinedGoesOnAlone) {
  join(job, 3);
  job.installed({0, 1, 2, 3}, 1);
  job.sent(3, Synced{1, ""});
  for (const MemberId id : {0, 1, 2}) job.died(id);
  job.froze(3, 1);
  EXPECT_EQ(job.got<View>(3).back().members, std::vector<MemberId>{3});
  EXPECT_EQ(job.membership.judged_members(), std::vector<MemberId>{3});
}

TEST_F(ElasticJoins, RankZeroOfAViewHasTheState) {
  job.started(3);
  job.started(4);
  ready(job, 3);
  ready(job, 4);
  at_border(job, {0, 1, 2}, 0);
  job.installed({0, 1, 2, 3, 4}, 1);
  job.sent(4, Synced{1, ""});
  for (const MemberId id : {0, 1, 2}) job.died(id);
  job.froze(3, 1);
  job.froze(4, 1);
  EXPECT_EQ(job.got<View>(4).back().members, std::vector<MemberId>{4});
  EXPECT_TRUE(job.membership.is_evicted(3));
}

TEST_F(ElasticJoins, ALaterProcessMayJoinBeforeAnEarlierOne) {
  job.started(3);
  job.started(4);
  ready(job, 4);
  job.after(2s);
  at_border(job, {0, 1, 2}, 0);
  EXPECT_EQ(job.membership.members(), (std::vector<MemberId>{0, 1, 2, 4}));
  job.installed({0, 1, 2, 4}, 1);
  job.sent(4, Synced{1, ""});
  ready(job, 3);
  at_border(job, {0, 1, 2, 4}, 1);
  EXPECT_EQ(job.membership.members(), (std::vector<MemberId>{0, 1, 2, 3, 4}));
}

TEST_F(ElasticJoins, AProcessThatWouldBeRankZeroWithoutTheStateIsRefused) {
  job.started(3);
  job.started(4);
  ready(job, 4);
  job.after(2s);
  at_border(job, {0, 1, 2}, 0);
  job.installed({0, 1, 2, 4}, 1);
  job.sent(4, Synced{1, ""});
  for (const MemberId id : {0, 1, 2}) job.died(id);
  EXPECT_EQ(job.got<Evicted>(3).at(0).reason, "rank 3 cannot join: all ranks that were started before it are lost");
  job.froze(4, 1);
  EXPECT_EQ(job.membership.members(), std::vector<MemberId>{4});
}

TEST_F(ElasticJoins, AMissedJoinerGoesAtOnceAndNoLinkIsCounted) {
  for (MemberId id = 3; id < 7; ++id) {
    join(job, id);
    const std::uint32_t epoch = job.membership.epoch();
    job.froze(1, epoch, id);
    EXPECT_TRUE(job.membership.is_evicted(id)) << "before the others are frozen";
    job.froze(0, epoch);
    job.froze(2, epoch);
    EXPECT_EQ(job.membership.members(), (std::vector<MemberId>{0, 1, 2}));
    job.installed({0, 1, 2}, epoch + 1);
  }
}

TEST_F(ElasticJoins, AJoinerThatReachesNoMemberGoes) {
  join(job, 3);
  job.froze(3, 1, 1);
  for (const MemberId id : {0, 1, 2}) job.froze(id, 1);
  EXPECT_TRUE(job.membership.is_evicted(3));
  EXPECT_EQ(job.membership.members(), (std::vector<MemberId>{0, 1, 2}));
}

TEST_F(ElasticJoins, AJoinerThatDoesNotInstallItsFirstEpochGoesAfterASecond) {
  join(job, 3);
  job.installed({0, 1, 2}, 1);
  job.after(999ms);
  EXPECT_FALSE(job.membership.is_evicted(3));
  job.after(1ms);
  EXPECT_TRUE(job.membership.is_evicted(3));
  for (const MemberId id : {0, 1, 2}) job.froze(id, 1);
  EXPECT_EQ(job.membership.members(), (std::vector<MemberId>{0, 1, 2}));
}

TEST_F(ElasticJoins, AParkedJobGoesOnWithTheMembersWhenAJoinerIsReady) {
  MembershipDriver other(config_of(3, 3));
  begin(other);
  other.died(2);
  other.froze(0, 0);
  other.froze(1, 0);
  EXPECT_TRUE(other.membership.is_parked());
  EXPECT_TRUE(other.membership.can_grow());
  EXPECT_THAT(other.got<Parked>(0), testing::ElementsAre(Parked{2, 3}));
  other.started(3);
  EXPECT_TRUE(other.membership.is_parked());
  ready(other, 3);
  EXPECT_FALSE(other.membership.is_parked());
  EXPECT_EQ(other.membership.members(), (std::vector<MemberId>{0, 1}));
  EXPECT_TRUE(other.got<View>(3).empty());
  other.installed({0, 1}, 1);
  EXPECT_EQ(other.got<Grow>(0).back(), Grow{{3}});
  at_border(other, {0, 1}, 1);
  EXPECT_EQ(other.membership.members(), (std::vector<MemberId>{0, 1, 3}));
}

TEST_F(ElasticJoins, AParkedJobWithoutAJoinerEndsAfterItsTime) {
  MembershipDriver other(config_of(3, 3));
  begin(other);
  other.died(2);
  other.froze(0, 0);
  other.froze(1, 0);
  EXPECT_LE(other.membership.next_deadline(), other.now + 60s);
  other.after(60s);
  ASSERT_EQ(other.end.size(), 1U);
  EXPECT_THAT(other.end[0], HasSubstr("no other came back within 60 s"));
}

TEST_F(ElasticJoins, AParkedJobForWhichNoneIsStartedEndsAtOnce) {
  MembershipDriver other(config_of(3, 3));
  begin(other);
  other.none_is_started();
  other.died(2);
  other.froze(0, 0);
  other.froze(1, 0);
  other.started(3);
  other.none_is_started();
  EXPECT_TRUE(other.membership.is_parked()) << "one is started";
  other.died(3);
  ASSERT_TRUE(other.end.empty());
  other.none_is_started();
  ASSERT_EQ(other.end.size(), 1U);
  EXPECT_THAT(other.end[0], HasSubstr("ranks 0, 1 are left of 3, fewer than --min-np 3, and none can come back"));
}

// A collective that takes longer than the patience would be ended at each border, and never complete.
TEST_F(ElasticJoins, TheMembersAreToldLaterAfterBordersThatNotAllHaveReached) {
  job.started(3);
  ready(job, 3);
  for (std::uint32_t epoch = 0; epoch < 3; ++epoch) {
    ASSERT_EQ(job.got<Grow>(0).size(), epoch + 1);
    at_border(job, {0, 1}, epoch);
    job.after(1s);
    EXPECT_FALSE(job.got<Freeze>(2).empty());
    job.froze(2, epoch);
    job.installed({0, 1, 2}, epoch + 1);
    job.after(std::chrono::seconds(1 << epoch) - 1ms);
    EXPECT_EQ(job.got<Grow>(0).size(), epoch + 1);
    job.after(1ms);
  }
  at_border(job, {0, 1, 2}, 3);
  EXPECT_EQ(job.membership.members(), (std::vector<MemberId>{0, 1, 2, 3}));
}

TEST_F(ElasticJoins, AViewHasNoMoreMembersThanTheJobMayHave) {
  for (MemberId id = 3; id < 6; ++id) job.started(id);
  for (MemberId id = 3; id < 6; ++id) ready(job, id);
  EXPECT_EQ(job.got<Grow>(0).back(), (Grow{{3, 4}}));
  at_border(job, {0, 1, 2}, 0);
  EXPECT_EQ(job.membership.members(), (std::vector<MemberId>{0, 1, 2, 3, 4}));
  EXPECT_EQ(job.membership.state_of(5).word, "ready");
  job.installed({0, 1, 2, 3, 4}, 1);
  for (const MemberId id : {3, 4}) job.sent(id, Synced{1, ""});
  for (const MemberId id : {3, 4}) job.sent(id, CanGrow{"a=1\n"});
  EXPECT_THAT(job.story, Contains("rank 5 waits to join: there are 5 ranks, and --max-np allows at most 5"));
}

TEST_F(ElasticJoins, AViewHasNoMoreMembersThanTheScriptCanHave) {
  const std::string terms = "most_ranks=4\na=1\n";
  for (const MemberId id : {0, 1, 2}) job.sent(id, CanGrow{terms});
  job.started(3);
  job.sent(3, Ready{terms, {}});
  EXPECT_EQ(job.got<Grow>(0).back(), Grow{{3}});
  at_border(job, {0, 1}, 0);
  job.started(4);
  job.sent(4, Ready{terms, {}});  // after the members were told
  at_border(job, {2}, 0);
  EXPECT_EQ(job.membership.members(), (std::vector<MemberId>{0, 1, 2, 3}));
  job.installed({0, 1, 2, 3}, 1);
  job.sent(3, Synced{1, ""});
  job.sent(3, CanGrow{terms});
  EXPECT_EQ(job.got<Grow>(0).size(), 1U);
  EXPECT_THAT(job.story, Contains("rank 4 waits to join: there are 4 ranks, and the script can have at most 4"));
}

TEST_F(ElasticJoins, AFailureWithoutTheStateDecidesNoExitCode) {
  join(job, 3);
  job.installed({0, 1, 2, 3}, 1);
  job.sent(3, Leave{true, "no", "KeyError at a.py:1"});
  for (const MemberId id : {0, 1, 2}) job.froze(id, 1);
  EXPECT_EQ(job.membership.epoch(), 2U) << "the others do not fail alike, and nothing waits for that";
  EXPECT_EQ(job.membership.judged_members(), (std::vector<MemberId>{0, 1, 2}));
}

TEST_F(ElasticJoins, AWaitingProcessIsToldThatTheJobHasEnded) {
  job.started(3);
  ready(job, 3);
  for (const MemberId id : {0, 1, 2}) job.sent(id, Leave{});
  EXPECT_TRUE(job.membership.is_over());
  EXPECT_FALSE(job.membership.can_grow());
  ASSERT_EQ(job.got<Evicted>(3).size(), 1U);
  EXPECT_EQ(job.membership.judged_members(), (std::vector<MemberId>{0, 1, 2}));
  job.started(4);
  EXPECT_EQ(job.got<Evicted>(4).size(), 1U);
}

TEST_F(ElasticJoins, AJoinerWhoseMembersHaveAllLeftEndsWithoutAnError) {
  join(job, 3);
  job.installed({0, 1, 2, 3}, 1);
  for (const MemberId id : {0, 1, 2}) job.sent(id, Leave{});
  job.froze(3, 1, 0);
  EXPECT_TRUE(job.end.empty());
  EXPECT_TRUE(job.membership.is_evicted(3));
  EXPECT_TRUE(job.membership.is_over());
}

TEST_F(ElasticJoins, TheStoryTellsThatTheMembersDoNotComeToABorder) {
  job.started(3);
  ready(job, 3);
  job.after(60s);
  EXPECT_THAT(job.story.back(), HasSubstr("rank 3 waits to join for 60 s"));
}

}  // namespace
}  // namespace horo
