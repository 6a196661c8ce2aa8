// Rounds: a tensor that ranks submit in different rounds fails on all of them, and what a rank has given up fails on
// the others.
#include "tests/controller/ranks.h"

namespace horo {
namespace {

constexpr std::uint64_t kStream = 5;

TensorSpec in_round(const std::string& name, std::uint32_t set = 0) {
  TensorSpec spec = in_set(set, name);
  spec.round_stream = kStream;
  return spec;
}

std::vector<TensorSpec> in_rounds(const std::vector<std::string>& names) {
  std::vector<TensorSpec> specs;
  for (const std::string& name : names) specs.push_back(in_round(name));
  return specs;
}

void begin_on(Ranks& ranks, const std::vector<int>& some, RoundNumber round, std::uint32_t set = 0) {
  for (const int rank : some) ranks[rank].begin_round({set, kStream}, round);
}

void fail_on(Ranks& ranks, int rank, const std::string& reason = "ValueError: no") {
  ranks[rank].fail_round({0, kStream}, reason);
  ranks.settle();
}

// Steps of round 1 until the tensors are in known plans.
void learn_plans_in_rounds(Ranks& ranks, const std::vector<TensorSpec>& specs) {
  for (std::uint64_t step = 0; step < 3; ++step) {
    for (int rank = 0; rank < ranks.size(); ++rank) ranks[rank].begin_round({0, kStream}, {step, 1});
    ranks.step(specs);
  }
  ASSERT_TRUE(ranks[0].stream().back().known);
}

// The same failures on these ranks, each of which begins with "tensor '<name>'" and has the text.
void expect_failures(Ranks& ranks, const std::vector<int>& some, const std::vector<std::string>& names,
                     const std::string& text) {
  for (const int rank : some) {
    SCOPED_TRACE(rank);
    EXPECT_EQ(ranks[rank].failures(), ranks[some.front()].failures());
    ASSERT_EQ(ranks[rank].failures().size(), names.size());
    for (std::size_t i = 0; i < names.size(); ++i) {
      EXPECT_EQ(ranks[rank].failures()[i].name, names[i]);
      EXPECT_THAT(ranks[rank].failures()[i].text, AllOf(StartsWith("tensor '" + names[i] + "'"), HasSubstr(text)));
    }
    EXPECT_TRUE(ranks[rank].idle()) << ranks[rank].in_flight();
  }
}

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
  ranks[1].fail_round({1, kStream}, "late");
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

constexpr const char* kGivenUp = "rank 1 has given up round 1 of step 7: ValueError: no";

TEST(FailedRound, WhatTheOthersHaveReportedFailsAtOnceAndLaterReportsToo) {
  Ranks ranks(3);
  begin_on(ranks, {0, 1, 2}, {7, 1});
  ranks.submit_on({0}, in_rounds({"a", "b"}));
  fail_on(ranks, 1);
  expect_failures(ranks, {0}, {"a", "b"}, kGivenUp);
  ranks.submit_on({2}, in_rounds({"a", "b"}));
  expect_failures(ranks, {0, 2}, {"a", "b"}, kGivenUp);
  EXPECT_THAT(ranks[1].failures(), IsEmpty());
  begin_on(ranks, {0, 1, 2}, {7, 2});
  ranks.submit(in_rounds({"a", "b"}));
  EXPECT_EQ(ranks[2].times("a") + ranks[2].times("b"), 2);
}

TEST(FailedRound, WhatTheRankHasReportedRuns) {
  Ranks ranks(3);
  begin_on(ranks, {0, 1, 2}, {7, 1});
  ranks.submit_on({0}, in_rounds({"a", "b"}));
  ranks[1].submit(in_round("a"));
  fail_on(ranks, 1);
  ranks.submit_on({2}, in_rounds({"a", "b"}));
  EXPECT_EQ(ranks[1].times("a"), 1);
  expect_failures(ranks, {0, 2}, {"b"}, kGivenUp);
}

TEST(FailedRound, APlanThatTheRankHasReportedInPartFailsForTheRest) {
  Ranks ranks(3);
  const std::vector<TensorSpec> specs = in_rounds({"a", "b"});
  learn_plans_in_rounds(ranks, specs);
  begin_on(ranks, {0, 1, 2}, {7, 1});
  ranks.submit_on({0}, specs);
  ranks[1].submit(specs[0]);  // waits for its plan, and is reported by the failure
  fail_on(ranks, 1);
  ranks.submit_on({2}, specs);
  EXPECT_EQ(ranks[1].times("a"), 4);
  expect_failures(ranks, {0, 2}, {"b"}, kGivenUp);
  EXPECT_TRUE(ranks[1].idle());
}

TEST(FailedRound, AWholePlanFailsWhereverItIsReported) {
  Ranks ranks(3);
  const std::vector<TensorSpec> specs = in_rounds({"a", "b"});
  learn_plans_in_rounds(ranks, specs);
  begin_on(ranks, {0, 1, 2}, {7, 1});
  ranks.submit_on({0}, specs);
  fail_on(ranks, 1);
  ranks.submit_on({2}, specs);
  expect_failures(ranks, {0, 2}, {"a", "b"}, kGivenUp);
  begin_on(ranks, {0, 1, 2}, {7, 2});
  ranks.submit(specs);
  EXPECT_TRUE(ranks[0].stream().back().known) << "the plan was dissolved";
}

TEST(FailedRound, ARankThatIsLateFailsAloneWhereOthersAreInTheNextRound) {
  Ranks ranks(3);
  begin_on(ranks, {0, 1, 2}, {7, 1});
  ranks.submit_on({0}, {in_round("w")});
  fail_on(ranks, 1);
  begin_on(ranks, {0, 1}, {7, 2});
  ranks.submit_on({0, 1}, {in_round("w")});
  ranks.submit_on({2}, {in_round("w")});
  expect_failures(ranks, {2}, {"w"}, kGivenUp);
  EXPECT_EQ(ranks[0].failures().size(), 1U);
  begin_on(ranks, {2}, {7, 2});
  ranks.submit_on({2}, {in_round("w")});
  for (int rank = 0; rank < 3; ++rank) EXPECT_EQ(ranks[rank].times("w"), 1);
}

TEST(FailedRound, ARankThatIsLateGetsTheFailureOfEachRoundThatAnotherHasGivenUp) {
  Ranks ranks(2);
  for (std::uint64_t round = 1; round <= 3; ++round) {
    begin_on(ranks, {1}, {7, round});
    fail_on(ranks, 1);
  }
  for (std::uint64_t round = 1; round <= 3; ++round) {
    begin_on(ranks, {0}, {7, round});
    ranks.submit_on({0}, {in_round("w")});
    ASSERT_EQ(ranks[0].failures().size(), round);
    EXPECT_THAT(ranks[0].failures().back().text, HasSubstr("has given up round " + std::to_string(round)));
  }
}

TEST(FailedRound, OnAllRanksNothingWaits) {
  Ranks ranks(3);
  begin_on(ranks, {0, 1, 2}, {7, 1});
  for (int rank = 0; rank < 3; ++rank) {
    ranks[rank].submit(in_round(std::string(1, static_cast<char>('a' + rank))));
    fail_on(ranks, rank, "why " + std::to_string(rank));
  }
  for (int rank = 0; rank < 3; ++rank) {
    EXPECT_TRUE(ranks[rank].idle()) << ranks[rank].in_flight();
    ASSERT_EQ(ranks[rank].failures().size(), 1U);
  }
  EXPECT_THAT(ranks[0].failures()[0].text, HasSubstr("rank 1 has given up round 1 of step 7: why 1"));
  EXPECT_THAT(ranks[2].failures()[0].text, HasSubstr("rank 0 has given up round 1 of step 7: why 0"));
  begin_on(ranks, {0, 1, 2}, {7, 2});
  ranks.submit(in_rounds({"a", "b", "c"}));
  EXPECT_EQ(ranks[1].times("a") + ranks[1].times("b") + ranks[1].times("c"), 3);
}

TEST(FailedRound, AUnitFailsCompletely) {
  Ranks ranks(3);
  std::vector<TensorSpec> specs = in_rounds({"a", "b"});
  for (TensorSpec& spec : specs) {
    spec.unit = "u";
    spec.unit_size = 2;
  }
  begin_on(ranks, {0, 1, 2}, {7, 1});
  ranks.submit_on({0}, specs);
  fail_on(ranks, 1);
  ranks.submit_on({2}, specs);
  expect_failures(ranks, {0, 2}, {"a", "b"}, kGivenUp);
  begin_on(ranks, {0, 1, 2}, {7, 2});
  ranks.submit(specs);
  EXPECT_EQ(ranks[1].times("a") + ranks[1].times("b"), 2);
}

TEST(FailedRound, OfARankThatHasJoinedFailsNothing) {
  Ranks ranks(3);
  begin_on(ranks, {0, 1, 2}, {7, 1});
  ranks.submit_on({0}, {in_round("w")});
  ranks[1].join();
  ranks.settle();
  fail_on(ranks, 1);
  ranks.submit_on({2}, {in_round("w")});
  EXPECT_EQ(ranks[2].times("w"), 1);
}

TEST(FailedRound, AnotherStreamIsNotFailed) {
  Ranks ranks(2);
  begin_on(ranks, {0, 1}, {7, 1});
  TensorSpec other = in_round("x");
  other.round_stream = 6;
  for (int rank = 0; rank < 2; ++rank) ranks[rank].begin_round({0, 6}, {7, 1});
  ranks.submit_on({0}, {other, gradient("y")});
  fail_on(ranks, 1);
  ranks.submit_on({1}, {other, gradient("y")});
  EXPECT_EQ(ranks[0].times("x") + ranks[0].times("y"), 2);
}

TEST(FailedRound, ALongReasonIsCutBeforeACharacter) {
  Ranks ranks(2);
  begin_on(ranks, {0, 1}, {7, 1});
  ranks.submit_on({0}, {in_round("w")});
  fail_on(ranks, 1, std::string(kMaxReasonBytes - 1, 'x') + "\xc3\xa9 and more");
  EXPECT_TRUE(ranks[0].failures().at(0).text.ends_with(": " + std::string(kMaxReasonBytes - 1, 'x')));
}

TEST(FailedRound, AReportOfTheRankItselfInTheRoundFailsToo) {
  Ranks ranks(2);
  begin_on(ranks, {0, 1}, {7, 1});
  ranks[1].fail_round({0, kStream}, "ValueError: no");
  ranks.submit_on({1}, {in_round("w")});
  expect_failures(ranks, {1}, {"w"}, kGivenUp);
}

}  // namespace
}  // namespace horo
