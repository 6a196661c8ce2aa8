// The rounds of the leader: what is compared, kept and forgotten.
#include "controller/round_table.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "controller/round_texts.h"

namespace horo {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;
using testing::Pair;
using testing::SizeIs;

const RoundStream kFirstStream{0, 5};

TEST(InstanceRounds, DifferOnlyIfTwoKnownRoundsDo) {
  InstanceRounds rounds;
  rounds.add(0, std::nullopt);
  rounds.add(1, RoundNumber{7, 1});
  rounds.add(2, RoundNumber{7, 1});
  EXPECT_FALSE(rounds.differ());
  EXPECT_EQ(rounds.of(0), std::nullopt);
  rounds.add(3, RoundNumber{8, 1});
  EXPECT_TRUE(rounds.differ());
  EXPECT_THAT(rounds.groups(RankSet(4, {0, 1, 2, 3})),
              ElementsAre(Pair(RoundNumber{7, 1}, ElementsAre(1, 2)), Pair(RoundNumber{8, 1}, ElementsAre(3))));
}

TEST(InstanceRounds, ARankThatIsForgottenLeavesNoRoundBehind) {
  InstanceRounds rounds;
  rounds.add(0, RoundNumber{1, 1});
  rounds.add(1, RoundNumber{1, 2});
  rounds.keep({1});
  rounds.add(2, RoundNumber{1, 2});
  EXPECT_FALSE(rounds.differ());
}

TEST(RoundTable, AFailureIsKeptUntilAllMembersHaveBegunALaterRound) {
  RoundTable table(3, 10);
  const RankSet members(3, {0, 1});
  EXPECT_EQ(table.fail(1, {kFirstStream, "too early"}), nullptr);
  for (std::uint64_t round = 1; round <= 3; ++round) {
    table.begin(1, {kFirstStream, {3, round}}, members);
    ASSERT_NE(table.fail(1, {kFirstStream, "why"}), nullptr);
  }
  EXPECT_THAT(table.failures(kFirstStream, {3, 1}), SizeIs(1));
  table.begin(0, {kFirstStream, {3, 2}}, members);
  EXPECT_THAT(table.failures(kFirstStream, {3, 1}), IsEmpty());
  EXPECT_THAT(table.failures(kFirstStream, {3, 2}), SizeIs(1));
}

TEST(RoundTable, AFailureEndsWhereTheRankBeginsTheSameRoundAgain) {
  RoundTable table(2, 10);
  const RankSet members(2, {0, 1});
  for (const int rank : {0, 1}) {
    table.begin(rank, {kFirstStream, {3, 1}}, members);
    table.fail(rank, {kFirstStream, "why"});
  }
  table.begin(1, {kFirstStream, {3, 1}}, members);
  ASSERT_THAT(table.failures(kFirstStream, {3, 1}), SizeIs(1));
  EXPECT_EQ(table.failures(kFirstStream, {3, 1}).front()->rank, 0);
}

TEST(RoundTable, KeepsALimitedNumberOfFailures) {
  RoundTable table(2, 10);
  const RankSet members(2, {0, 1});
  for (std::uint64_t round = 0; round <= RoundTable::kMostGivenUp; ++round) {
    table.begin(1, {kFirstStream, {3, round}}, members);
    table.fail(1, {kFirstStream, "why"});
  }
  EXPECT_THAT(table.failures(kFirstStream, {3, 0}), IsEmpty());
  EXPECT_THAT(table.failures(kFirstStream, {3, 1}), SizeIs(1));
}

TEST(RoundTable, BeyondTheLimitItForgetsTheStreamThatWasUsedLeastRecently) {
  RoundTable table(1, 2);
  for (const std::uint64_t stream : {1, 2, 1, 3}) table.begin(0, {{0, stream}, {1, 1}}, RankSet(1, {0}));
  EXPECT_TRUE(table.current(0, {0, 1}) && table.current(0, {0, 3}));
  EXPECT_FALSE(table.current(0, {0, 2}));
}

RoundNumber digested(std::uint64_t step, std::uint64_t number, std::uint64_t digest) {
  return {step, ((number + 1) << 32U) | digest};
}

TEST(RoundTable, AFailureIsOfTheRoundWhateverItsDigest) {
  RoundTable table(2, 10);
  table.begin(1, {kFirstStream, digested(7, 0, 5)}, RankSet(2, {0, 1}));
  table.fail(1, {kFirstStream, "no"});
  EXPECT_THAT(table.failures(kFirstStream, digested(7, 0, 6)), SizeIs(1));
  EXPECT_THAT(table.failures(kFirstStream, digested(7, 1, 5)), IsEmpty());
  EXPECT_THAT(table.failures(kFirstStream, {7, 0}), SizeIs(1));
}

TEST(RoundTable, ForgetsTheStreamsOfASet) {
  RoundTable table(1, 10);
  for (const std::uint32_t set : {1, 2}) table.begin(0, {{set, 5}, {1, 1}}, RankSet(1, {0}));
  table.forget_set(1);
  EXPECT_FALSE(table.current(0, {1, 5}));
  EXPECT_TRUE(table.current(0, {2, 5}));
}

TEST(RoundTexts, TheSmallerGroupIsToldWhatItDidUnlikeTheOthers) {
  EXPECT_EQ(
      rounds_text("w", {{{7, 2}, {0}}, {{8, 1}, {1, 2}}}, ""),
      "tensor 'w': rank 0 submits it in round 2 of step 7, ranks 1, 2 in round 1 of step 8: rank 0 called "
      "backward() more often, or step() less often, than ranks 1, 2. Nothing was changed; call both equally often "
      "on all ranks");
  EXPECT_THAT(
      rounds_text("w", {{{7, 1}, {0, 1}}, {{8, 1}, {2}}}, " of process set 'a'"),
      testing::HasSubstr("set 'a': ranks 0, 1 submit it in round 1 of step 7, rank 2 in round 1 of step 8: rank "
                         "2 called backward() less often, or step() more often, than ranks 0, 1"));
  EXPECT_THAT(rounds_text("w", {{{7, 1}, {0}}, {{7, 2}, {1, 2}}}, ""),
              testing::HasSubstr("rank 0 called backward() less often than ranks 1, 2"));
  EXPECT_THAT(rounds_text("w", {{{7, 1}, {0}}, {{7, 2}, {1}}, {{7, 3}, {2}}}, ""),
              testing::HasSubstr("the ranks called backward() and step() in different orders, or not equally often"));
}

TEST(RoundTexts, RanksWhoseDigestsDifferSubmitOtherTensors) {
  EXPECT_EQ(
      rounds_text("w", {{digested(7, 0, 5), {0, 2}}, {digested(7, 0, 6), {1}}}, ""),
      "tensor 'w': rank 1 submits other tensors in round 0 of step 7 than ranks 0, 2. Nothing was changed; submit "
      "the same tensors on all ranks");
  EXPECT_THAT(rounds_text("w", {{digested(7, 1, 5), {0, 2}}, {digested(7, 0, 6), {1}}}, ""),
              testing::HasSubstr("rank 1 in round 0 of step 7: rank 1 called backward() less often than ranks 0, 2"));
}

}  // namespace
}  // namespace horo
