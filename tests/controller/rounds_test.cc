// Rounds: a tensor that ranks submit in different rounds fails on all of them.
#include "tests/controller/round_ranks.h"

namespace horo {
namespace {

constexpr const char* kExtraBackward =
    "rank 0 submits it in round 2 of step 7, ranks 1, 2 in round 1 of step 8: rank 0 called backward() more often";

TEST(Rounds, AnExtraBackwardOnOneRankFailsByNameAndLaterRoundsRun) {
  Ranks ranks(3);
  begin_on(ranks, {0}, {7, 2});
  begin_on(ranks, {1, 2}, {8, 1});
  ranks.submit({in_round("w")});
  expect_failures(ranks, {0, 1, 2}, {"w"}, kExtraBackward);
  begin_on(ranks, {0, 1, 2}, {9, 1});
  ranks.submit({in_round("w")});
  EXPECT_EQ(ranks[2].times("w"), 1);
}

TEST(Rounds, ARoundOfTheOthersDoesNotMatterBeforeTheTensorIsComplete) {
  Ranks ranks(3);
  begin_on(ranks, {0}, {7, 2});
  begin_on(ranks, {1, 2}, {8, 1});
  ranks.submit_on({0, 1}, {in_round("w")});
  EXPECT_THAT(ranks[0].failures(), IsEmpty());
  ranks.submit_on({2}, {in_round("w")});
  expect_failures(ranks, {0, 1, 2}, {"w"}, kExtraBackward);
}

TEST(Rounds, AWholePlanOfAnotherRoundFailsTensorByTensor) {
  Ranks ranks(3);
  const std::vector<TensorSpec> specs = in_rounds({"a", "b"});
  learn_plans_in_rounds(ranks, specs);
  begin_on(ranks, {0}, {7, 2});
  begin_on(ranks, {1, 2}, {8, 1});
  ranks.submit(specs);
  expect_failures(ranks, {0, 1, 2}, {"a", "b"}, kExtraBackward);
  begin_on(ranks, {0, 1, 2}, {9, 1});
  ranks.submit(specs);
  EXPECT_TRUE(ranks[1].stream().back().known) << "the plan was dissolved";
  EXPECT_EQ(ranks[1].stream().back().names.size(), 2U);
}

TEST(Rounds, APlanWithAbsentTensorsOfAnotherRoundFailsToo) {
  Ranks ranks(3);
  const std::vector<TensorSpec> specs = in_rounds({"a", "b"});
  learn_plans_in_rounds(ranks, specs);
  begin_on(ranks, {0}, {7, 2});
  begin_on(ranks, {1, 2}, {8, 1});
  for (int rank = 0; rank < 3; ++rank) {
    ranks[rank].submit(specs[0]);
    ranks[rank].submit(specs[1], rank == 0);
  }
  ranks.settle();
  expect_failures(ranks, {0, 1, 2}, {"a", "b"}, kExtraBackward);
}

// Rank 0 reports the plan as a whole in round 1, begins round 2 and reports one of its tensors there; the plan's report
// was of round 1.
TEST(Rounds, ASplitPlanKeepsTheRoundInWhichItWasReported) {
  Ranks ranks(2);
  const std::vector<TensorSpec> specs = in_rounds({"a", "b"});
  learn_plans_in_rounds(ranks, specs);
  begin_on(ranks, {0, 1}, {7, 1});
  ranks.submit_on({0}, specs);
  begin_on(ranks, {0}, {7, 2});
  ranks.submit_on({0}, {in_round("c")});
  ranks[1].submit(specs[0]);
  ranks[1].nudge();
  ranks.settle();
  EXPECT_EQ(ranks[1].times("a"), 4);
  ranks.submit_on({1}, {specs[1]});
  EXPECT_EQ(ranks[1].times("b"), 4);
  begin_on(ranks, {1}, {7, 2});
  ranks.submit_on({1}, {in_round("c")});
  EXPECT_EQ(ranks[1].times("c"), 1);
  EXPECT_THAT(ranks[0].failures(), IsEmpty());
}

// A tensor that waits in an incomplete plan when the next round begins belongs to the round before.
TEST(Rounds, ATensorThatWaitsForItsPlanBelongsToTheRoundOfItsSubmission) {
  Ranks ranks(2);
  const std::vector<TensorSpec> specs = in_rounds({"a", "b"});
  learn_plans_in_rounds(ranks, specs);
  for (int rank = 0; rank < 2; ++rank) {
    begin_on(ranks, {rank}, {7, 1});
    ranks[rank].submit(specs[0]);
    begin_on(ranks, {rank}, {7, 2});
    ranks[rank].submit(specs[1]);
    if (rank == 0) ranks.settle();  // of the other rank one message has reports of both rounds
  }
  ranks.settle();
  EXPECT_EQ(ranks[1].times("a") + ranks[1].times("b"), 8);
  EXPECT_THAT(ranks[0].failures(), IsEmpty());
}

TEST(Rounds, ReportsOfTwoRoundsInOneTurnAreOfTheirOwnRounds) {
  for (const int slow : {0, 1}) {
    Ranks ranks(2);
    begin_on(ranks, {slow}, {7, 1});
    ranks[slow].submit(in_round("a"));
    begin_on(ranks, {slow}, {7, 2});
    ranks[slow].submit(in_round("b"));
    begin_on(ranks, {1 - slow}, {7, 1});
    ranks.submit_on({1 - slow}, {in_round("a")});
    begin_on(ranks, {1 - slow}, {7, 2});
    ranks.submit_on({1 - slow}, {in_round("b")});
    EXPECT_EQ(ranks[1].times("a") + ranks[1].times("b"), 2);
    EXPECT_THAT(ranks[0].failures(), IsEmpty());
  }
}

TEST(Rounds, ABegunRoundSendsNothingAndTravelsWithTheNextReport) {
  Ranks ranks(2);
  begin_on(ranks, {0, 1}, {0, 1});
  ranks.settle();
  EXPECT_THAT(ranks.sent, IsEmpty());
  ranks.submit_on({1}, {in_round("x")});
  EXPECT_EQ(ranks.sent.size(), 1U);
}

TEST(Rounds, ATensorOfAnotherStreamOrOfNoneHasNoRound) {
  Ranks ranks(2);
  begin_on(ranks, {0}, {7, 1});
  begin_on(ranks, {1}, {7, 2});
  TensorSpec other = in_round("x");
  other.round_stream = 6;
  ranks.submit({other, gradient("y")});
  EXPECT_EQ(ranks[1].times("x") + ranks[1].times("y"), 2);
}

TEST(Rounds, AUnitOfDifferentRoundsFailsCompletely) {
  Ranks ranks(3);
  std::vector<TensorSpec> specs = in_rounds({"a", "b"});
  for (TensorSpec& spec : specs) {
    spec.unit = "u";
    spec.unit_size = 2;
  }
  begin_on(ranks, {0}, {7, 2});
  begin_on(ranks, {1, 2}, {8, 1});
  ranks.submit(specs);
  expect_failures(ranks, {0, 1, 2}, {"a", "b"}, kExtraBackward);
}

TEST(Rounds, ARankThatHasJoinedIsNotCompared) {
  Ranks ranks(3);
  begin_on(ranks, {1}, {6, 1});
  begin_on(ranks, {0, 2}, {7, 1});
  ranks[1].join();
  ranks.settle();
  ranks.submit_on({0, 2}, {in_round("w")});
  EXPECT_EQ(ranks[2].times("w"), 1);
}

TEST(Rounds, ARankThatLeftIsNamedBeforeItsRoundMatters) {
  Ranks ranks(3);
  begin_on(ranks, {0}, {7, 2});
  begin_on(ranks, {1, 2}, {8, 1});
  ranks.submit_on({0, 1}, {in_round("w")});
  for (const int rank : {0, 1}) ranks[rank].post(RankLeft{2});
  ranks.settle();
  expect_failures(ranks, {0, 1}, {"w"}, "rank 2 has left");
}

TEST(Rounds, AreForgottenWithTheirSet) {
  Ranks ranks(2);
  ranks.add_set({1});
  begin_on(ranks, {1}, {7, 1}, 1);
  ranks.submit_on({1}, {in_round("w", 1)});
  begin_on(ranks, {1}, {7, 2}, 1);
  ranks[1].fail_round({1, kRoundStream}, "late");
  ranks.remove_set(1);
  begin_on(ranks, {1}, {7, 3}, 1);
  ranks.submit({gradient("x")});
  EXPECT_EQ(ranks[1].times("x"), 1);
}

TEST(Rounds, OfAStreamThatWasForgottenAreNotCompared) {
  CoordinatorConfig config;
  config.max_round_streams = 1;
  Ranks ranks(2, config);
  begin_on(ranks, {0}, {7, 1});
  begin_on(ranks, {1}, {7, 2});
  for (int rank = 0; rank < 2; ++rank) ranks[rank].begin_round({0, 6}, {0, 0});
  TensorSpec other = gradient("y");
  other.round_stream = 6;
  ranks.submit({in_round("w"), other});
  EXPECT_EQ(ranks[1].times("w") + ranks[1].times("y"), 2);
}

}  // namespace
}  // namespace horo
