// Rounds that a rank has given up: what it has not submitted fails on the others.
#include "tests/controller/round_ranks.h"

namespace horo {
namespace {

constexpr const char* kGivenUp = "rank 1 has given up round 1 of step 7: ValueError: no";

TEST(FailedRound, OfStepsBeforeAJoinIsForgotten) {
  Ranks ranks(2);
  begin_on(ranks, {0, 1}, {5, 0});
  fail_on(ranks, 1, "KeyError");
  for (const int rank : {0, 1}) ranks[rank].join();
  ranks.settle();
  begin_on(ranks, {0, 1}, {0, 0});
  begin_on(ranks, {0}, {5, 0});
  ranks.submit_on({0}, {in_round("w")});
  EXPECT_THAT(ranks[0].failures(), IsEmpty());
  begin_on(ranks, {1}, {5, 0});
  ranks.submit_on({1}, {in_round("w")});
  EXPECT_EQ(ranks[0].times("w"), 1);
}

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
  ranks[1].fail_round({0, kRoundStream}, "ValueError: no");
  ranks.submit_on({1}, {in_round("w")});
  expect_failures(ranks, {1}, {"w"}, kGivenUp);
}

}  // namespace
}  // namespace horo
