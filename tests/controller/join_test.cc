// Ranks that run out of data: the others continue without them, and no rank counts as joined after the last join.
#include "tests/controller/ranks.h"

namespace horo {
namespace {

TEST(Join, EndsWhenAllHaveJoinedAndNamesTheLastRank) {
  Ranks ranks(3);
  for (const int rank : {2, 0, 1}) {
    EXPECT_TRUE(ranks[0].joins().empty());
    ranks[rank].join();
    ranks.settle();
  }
  for (int rank = 0; rank < 3; ++rank) {
    ASSERT_EQ(ranks[rank].joins().size(), 1U);
    EXPECT_EQ(ranks[rank].joins()[0].last, 1);
    EXPECT_TRUE(ranks[rank].idle());
  }
}

TEST(Join, AllReducesAndBarriersContinueAmongTheOthers) {
  Ranks ranks(3);
  ranks[1].join();
  TensorSpec barrier = gradient("b", {});
  barrier.kind = CollectiveKind::kBarrier;
  ranks.submit_on({0, 2}, {gradient("x"), barrier});
  for (const int rank : {0, 2}) {
    ASSERT_EQ(ranks[rank].stream().size(), 2U);
    for (const Seen& seen : ranks[rank].stream()) EXPECT_THAT(seen.ranks, ElementsAre(0, 2));
  }
  EXPECT_TRUE(ranks[1].stream().empty());
}

TEST(Join, TensorsThatWaitForTheRankBecomeComplete) {
  Ranks ranks(3);
  ranks.submit_on({0, 1}, {gradient("x"), gradient("y")});
  EXPECT_TRUE(ranks[0].stream().empty());
  ranks[2].join();
  ranks.settle();
  ASSERT_EQ(ranks[0].stream().size(), 1U);
  EXPECT_THAT(ranks[0].stream()[0].names, ElementsAre("x", "y"));
  EXPECT_THAT(ranks[0].stream()[0].ranks, ElementsAre(0, 1));
}

TEST(Join, TensorsThatTheRankSubmittedBeforeCount) {
  Ranks ranks(3);
  learn_plans(ranks, {gradient("a"), gradient("b")});
  ranks[2].submit(gradient("x"));
  for (const char* name : {"a", "b"}) ranks[2].submit(gradient(name));
  ranks[2].join();
  ranks.settle();
  ranks.submit_on({0, 1}, {gradient("x"), gradient("a"), gradient("b")});
  EXPECT_EQ(ranks[2].times("x"), 1);
  EXPECT_EQ(ranks[2].times("a"), 4);
  EXPECT_EQ(ranks[2].stream(), ranks[0].stream());
  EXPECT_TRUE(ranks[2].stream().back().ranks.empty());
}

TEST(Join, APlanThatTheJoinCompletesRunsBeforeTheJoin) {
  for (const int last : {0, 1, 2}) {
    Ranks ranks(3);
    learn_plans(ranks, {gradient("a"), gradient("b")});
    for (int rank = 0; rank < 3; ++rank) {
      if (rank != last) ranks[rank].submit(gradient("a")), ranks[rank].submit(gradient("b"));
    }
    ranks.settle();
    for (const char* name : {"a", "b"}) ranks[last].submit(gradient(name));
    ranks[last].join();  // before the leader has received the report of the plan
    ranks.settle();
    for (const char* name : {"a", "b"}) {
      for (int rank = 0; rank < 3; ++rank) EXPECT_EQ(ranks[rank].times(name), 4) << name << " on rank " << rank;
    }
    EXPECT_TRUE(ranks[last].stream().back().ranks.empty()) << "all took part";
    for (int rank = 0; rank < 3; ++rank) {
      if (rank != last) ranks[rank].join();
    }
    ranks.settle();
    for (int rank = 0; rank < 3; ++rank) EXPECT_TRUE(ranks[rank].idle());
  }
}

TEST(Join, TheTensorsOfAnIncompletePlanAreReportedFirst) {
  Ranks ranks(2);
  learn_plans(ranks, {gradient("a"), gradient("b")});
  ranks[1].submit(gradient("a"));
  ranks[1].join();
  ranks.settle();
  ranks.submit_on({0}, {gradient("a"), gradient("b")});
  EXPECT_EQ(ranks[1].times("a"), 4);
  EXPECT_EQ(ranks[1].times("b"), 3);
  EXPECT_EQ(ranks[0].times("b"), 4);
  EXPECT_THAT(ranks[0].stream().back().ranks, ElementsAre(0));
}

TEST(Join, PlansFormAgainAfterEveryJoin) {
  Ranks ranks(2);
  for (int round = 0; round < 5; ++round) {
    learn_plans(ranks, {gradient("a"), gradient("b")});
    ASSERT_TRUE(ranks[0].stream().back().known) << round;
    ranks[1].join();
    ranks.settle();
    ranks.step_on({0}, {gradient("a"), gradient("b")});
    EXPECT_FALSE(ranks[0].stream().back().known);
    EXPECT_THAT(ranks[0].stream().back().names, ElementsAre("a", "b"));
    ranks[0].join();
    ranks.settle();
  }
}

TEST(Join, ATensorThatARankNeverSubmittedIsInNoPlan) {
  Ranks ranks(2);
  ranks[1].join();
  ranks.submit_on({0}, {gradient("new")});
  ranks[0].join();
  ranks.settle();
  ranks[0].step_end();
  ranks.settle();
  ranks.submit({gradient("new")});
  EXPECT_EQ(ranks[0].times("new"), 2);
  EXPECT_EQ(ranks[1].times("new"), 1);
}

TEST(Join, OtherCollectivesFailAndNameTheJoinedRanks) {
  Ranks ranks(3);
  ranks.add_set({0, 1}, "pair");
  ranks[1].join(1);
  TensorSpec gather = in_set(1, "g");
  gather.kind = CollectiveKind::kAllGather;
  ranks.submit_on({0}, {gather});
  EXPECT_THAT(ranks[0].failures().at(0).text,
              StartsWith("all_gather of tensor 'g' of process set 'pair' is not possible while rank 1 has joined"));
  EXPECT_TRUE(ranks[1].failures().empty());
}

TEST(Join, ASendRecvFailsOnlyIfOneOfItsTwoRanksHasJoined) {
  Ranks ranks(3);
  ranks[2].join();
  ranks.submit_on({0, 1}, {message(0, "x", 0, 1)});
  ranks.submit_on({0}, {message(0, "y", 0, 2)});
  EXPECT_EQ(ranks[1].times("x"), 1);
  EXPECT_THAT(ranks[0].failures().at(0).text, HasSubstr("of tensor 'y' is not possible while rank 2 has joined"));
}

TEST(Join, JoiningOneSetDoesNotJoinAnother) {
  Ranks ranks(2);
  ranks.add_set({1});
  ranks[1].join(1);
  ranks.settle();
  EXPECT_EQ(ranks[1].joins().size(), 1U);
  ranks[1].join();
  ranks.settle();
  ranks.submit_on({1}, {in_set(1, "x")});
  EXPECT_EQ(ranks[1].times("x"), 1);
  EXPECT_EQ(ranks[1].joins().size(), 1U);
}

TEST(Join, LastIsTheRankInTheSet) {
  Ranks ranks(4);
  ranks.add_set({1, 3});
  for (const int rank : {1, 3}) {
    ranks[rank].join(1);
    ranks.settle();
  }
  EXPECT_EQ(ranks[1].joins().at(0).last, 1);
  EXPECT_TRUE(ranks[0].joins().empty());
}

TEST(Join, ASubmissionAfterTheJoinFails) {
  Ranks ranks(2);
  ranks[1].join();
  ranks[1].submit(gradient("x"));
  ranks.settle();
  EXPECT_THAT(ranks[1].failures().at(0).text, StartsWith("tensor 'x': this rank has joined"));
  ranks.submit_on({0}, {gradient("x")});
  EXPECT_EQ(ranks[0].times("x"), 1);
}

TEST(Join, ARankThatHasJoinedIsNotMissing) {
  CoordinatorConfig config;
  config.stall_limit = 400ms;
  config.stall_warning = 100ms;
  Ranks ranks(3, config);
  ranks[1].join();
  ranks.submit_on({0}, {gradient("x")});
  ranks.fire_timers_until(ranks.now + 1s);
  EXPECT_THAT(ranks[0].failures().at(0).text, HasSubstr("submitted by rank 0, but not by rank 2 within"));
  ranks.fire_timers_until(ranks.now + 1h);
  EXPECT_TRUE(ranks[1].failures().empty()) << "a join waits as long as it takes";
}

TEST(Join, AStallTextNamesTheJoinThatAMissingRankWaitsFor) {
  CoordinatorConfig config;
  config.stall_limit = 400ms;
  Ranks ranks(3, config);
  ranks.add_set({0, 1}, "tp0");
  ranks[1].join();
  ranks.submit_on({0}, {in_set(1, "x")});
  ranks.fire_timers_until(ranks.now + 1s);
  EXPECT_THAT(ranks[0].failures().at(0).text, HasSubstr("Rank 1 waits for join (not submitted by ranks 0, 2)."));
}

TEST(Join, ProcessSetsCannotBeAddedWhileARankHasJoinedTheWorld) {
  Ranks ranks(2);
  ranks[1].join();
  ranks[0].add_set({0});
  ranks.settle();
  EXPECT_THAT(ranks[0].failures().at(0).text, HasSubstr("is not possible while rank 1 has joined"));
}

TEST(Join, FailsWhenAMemberLeavesWithoutIt) {
  Ranks ranks(3);
  ranks[1].join();
  ranks.settle();
  ranks[0].post(RankLeft{2});
  ranks.settle();
  EXPECT_THAT(ranks[1].failures().at(0).text, StartsWith("join: rank 2 has left"));
  ranks[0].join();
  ranks.settle();
  EXPECT_THAT(ranks[0].failures().at(0).text, StartsWith("join: rank 2 has left"));
  for (const int rank : {0, 1}) EXPECT_TRUE(ranks[rank].idle());
}

TEST(Join, TheJoinOfARankThatLeavesAfterwardsCounts) {
  Ranks ranks(2);
  ranks[1].join();
  ranks.settle();
  ranks[0].post(RankLeft{1});
  ranks.submit_on({0}, {gradient("x")});
  EXPECT_EQ(ranks[0].times("x"), 1);
  ranks[0].join();
  ranks.settle();
  EXPECT_EQ(ranks[0].joins().size(), 1U);
  ranks.submit_on({0}, {gradient("y")});
  EXPECT_THAT(ranks[0].failures().at(0).text, HasSubstr("rank 1 has left"));
}

TEST(Join, ATensorThatIsAbsentOnAllOtherRanksIsSkipped) {
  Ranks ranks(3);
  ranks[2].join();
  for (const int rank : {0, 1}) ranks[rank].submit(gradient("x"), true);
  ranks.settle();
  EXPECT_TRUE(ranks[0].stream().at(0).skipped);
  EXPECT_TRUE(ranks[2].stream().empty());
}

TEST(Join, AMismatchAmongTheOthersIsDetected) {
  Ranks ranks(3);
  ranks[2].join();
  ranks[0].submit(gradient("x", {1}));
  ranks[1].submit(gradient("x", {2}));
  ranks.settle();
  EXPECT_THAT(ranks[1].failures().at(0).text, HasSubstr("shape [1] on rank 0; shape [2] on rank 1"));
}

TEST(Join, FailsWhenItsSetIsRemoved) {
  Ranks ranks(3);
  ranks.add_set({0, 1}, "tp0");
  ranks[0].join(1);
  ranks.settle();
  ranks.remove_set(1);
  EXPECT_THAT(ranks[0].failures().at(0).text, HasSubstr("of process set 'tp0': the process set was removed"));
  EXPECT_TRUE(ranks[0].idle() && ranks[0].joins().empty());
}

}  // namespace
}  // namespace horo
