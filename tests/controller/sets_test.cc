// Process sets and send_recv: which ranks must be ready, which ranks take part, and what ends with a set.
#include "controller/messages.h"
#include "horo/base/error.h"
#include "tests/controller/ranks.h"

namespace horo {
namespace {

TEST(ProcessSets, AreNumberedFromOneEquallyOnAllRanks) {
  Ranks ranks(3);
  for (int rank = 0; rank < 3; ++rank) {
    ranks[rank].add_set({0, 2}, "tp0");
    ranks[rank].add_set({1, 2});
  }
  ranks.settle();
  for (int rank = 0; rank < 3; ++rank) {
    EXPECT_THAT(ranks[rank].sets(),
                ElementsAre(Pair(0, ElementsAre(0, 1, 2)), Pair(1, ElementsAre(0, 2)), Pair(2, ElementsAre(1, 2))));
    EXPECT_TRUE(ranks[rank].idle());
  }
}

TEST(ProcessSets, ATensorNeedsTheMembersOnly) {
  Ranks ranks(4);
  ranks.add_set({1, 3});
  ranks.submit_on({1}, {in_set(1, "x")});
  EXPECT_TRUE(ranks[1].stream().empty());
  ranks.submit_on({3}, {in_set(1, "x")});
  EXPECT_EQ(ranks[1].times("x"), 1);
  EXPECT_EQ(ranks[1].stream(), ranks[3].stream());
  EXPECT_TRUE(ranks[0].stream().empty() && ranks[2].stream().empty());
}

TEST(ProcessSets, AReleaseHasTheSameNumberOnAllItsMembers) {
  Ranks ranks(3);
  ranks.add_set({0, 1});
  ranks.add_set({1, 2});
  ranks.submit_on({0, 1}, {in_set(1, "a")});
  ranks.submit_on({1, 2}, {in_set(2, "a")});
  ranks.submit({gradient("a")});
  const auto numbers = [&](int rank) {
    std::vector<std::uint64_t> numbers;
    for (const Seen& seen : ranks[rank].stream()) numbers.push_back(seen.number);
    return numbers;
  };
  EXPECT_THAT(numbers(0), ElementsAre(1, 3));
  EXPECT_THAT(numbers(1), ElementsAre(1, 2, 3));
  EXPECT_THAT(numbers(2), ElementsAre(2, 3));
}

TEST(ProcessSets, ASetWithoutRankZeroHasPlansToo) {
  Ranks ranks(3);
  ranks.add_set({1, 2});
  for (int step = 0; step < 3; ++step) ranks.step_on({1, 2}, {in_set(1, "a"), in_set(1, "b")});
  ranks.sent.clear();
  ranks.step_on({1, 2}, {in_set(1, "b"), in_set(1, "a")});
  EXPECT_TRUE(ranks[1].stream().back().known);
  EXPECT_EQ(ranks[1].stream(), ranks[2].stream());
  EXPECT_EQ(ranks.sent.size(), 4U) << "one message of each member, one to each rank";
  EXPECT_TRUE(ranks[0].stream().empty());
}

TEST(ProcessSets, NonMembersCountTheReleasesOfPlansWithAbsentTensors) {
  Ranks ranks(3);
  ranks.add_set({1, 2});
  for (int step = 0; step < 3; ++step) ranks.step_on({1, 2}, {in_set(1, "a"), in_set(1, "b"), in_set(1, "c")});
  for (const int rank : {1, 2}) {
    ranks[rank].submit(in_set(1, "a"), rank == 1);
    ranks[rank].submit(in_set(1, "b"), true);
    ranks[rank].submit(in_set(1, "c"));
  }
  ranks.settle();
  ranks.submit({gradient("x")});
  EXPECT_EQ(ranks[0].stream().back(), ranks[1].stream().back());
  EXPECT_TRUE((ranks[1].stream().end() - 2)->skipped);
}

TEST(ProcessSets, TheFirstMemberReportsStepEndsWithStepwiseTensors) {
  Ranks ranks(3);
  ranks.add_set({1, 2});
  TensorSpec spec = in_set(1, "a");
  spec.stepwise = false;
  ranks.submit_on({1, 2}, {spec});
  ranks.sent.clear();
  for (const int rank : {1, 2}) ranks[rank].step_end(1);
  ranks.settle();
  EXPECT_TRUE(ranks.sent.empty());
}

TEST(ProcessSets, RanksThatAddDifferentSetsFailWithAMismatch) {
  Ranks ranks(3);
  for (int rank = 0; rank < 3; ++rank) ranks[rank].add_set({0, rank == 1 ? 1 : 2});
  ranks.settle();
  for (int rank = 0; rank < 3; ++rank) {
    ASSERT_EQ(ranks[rank].failures().size(), 1U);
    EXPECT_THAT(ranks[rank].failures()[0].text,
                HasSubstr("add_process_set#0': ranks disagree: ranks [0, 2] on ranks 0, 2; ranks [0, 1] on rank 1"));
    EXPECT_EQ(ranks[rank].sets().size(), 1U);
  }
}

TEST(ProcessSets, ASecondSetOfTheSameRanksIsRefusedWithTheNameOfTheFirst) {
  Ranks ranks(2);
  ranks.add_set({1}, "alone");
  ranks.add_set({1});
  EXPECT_THAT(ranks[0].failures().at(0).text, HasSubstr("of rank 1 exists already: process set 'alone'"));
}

TEST(ProcessSets, ASetThatIsAddedAgainHasANewNumber) {
  Ranks ranks(2);
  for (std::uint32_t set = 1; set < 4; ++set) {
    ranks.add_set({0});
    ranks.submit_on({0}, {in_set(set, "x")});
    ranks.remove_set(set);
    EXPECT_EQ(ranks[1].sets().size(), 1U);
  }
  EXPECT_EQ(ranks[0].times("x"), 3);
}

TEST(ProcessSets, RemovalFailsTheWaitingTensorsOfTheSet) {
  Ranks ranks(3);
  ranks.add_set({0, 1}, "tp0");
  for (int step = 0; step < 3; ++step) ranks.step_on({0, 1}, {in_set(1, "a"), in_set(1, "b")});
  ranks.submit_on({1}, {in_set(1, "a"), in_set(1, "b"), in_set(1, "c")});
  ranks.submit_on({0}, {in_set(1, "a")});  // its plan is not complete on rank 0
  ranks.remove_set(1);
  EXPECT_EQ(ranks[1].failures().size(), 3U);
  EXPECT_EQ(ranks[0].failures().size(), 1U);
  for (const TensorFailure& failure : ranks[1].failures()) {
    EXPECT_THAT(failure.text, HasSubstr("of process set 'tp0': the process set was removed before"));
  }
  for (int rank = 0; rank < 3; ++rank) EXPECT_TRUE(ranks[rank].idle()) << ranks[rank].in_flight();
  ranks.fire_timers_until(ranks.now + 120s);
  EXPECT_TRUE(ranks[0].warnings().empty());
}

TEST(ProcessSets, AReportThatCrossesTheRemovalFails) {
  Ranks ranks(3);
  ranks.add_set({0, 1});
  ranks.submit_on({0, 1}, {in_set(1, "x")});
  for (int rank = 0; rank < 3; ++rank) ranks[rank].remove_set(1);
  ranks.deliver(1, ranks.turn(1));
  ranks.deliver(2, ranks.turn(2));
  const std::vector<Send> removal = ranks.turn(0);
  ranks[1].submit(in_set(1, "x"));
  ranks[1].submit(in_set(1, "new"));
  ranks.deliver(1, ranks.turn(1));
  ranks.deliver(0, removal);
  ranks.settle();
  EXPECT_EQ(ranks[1].failures().size(), 2U);
  EXPECT_TRUE(ranks[1].idle());
}

TEST(ProcessSets, AStepEndThatCrossesTheRemovalIsIgnored) {
  Ranks ranks(3);
  ranks.add_set({1, 2});
  ranks.submit_on({1, 2}, {in_set(1, "x")});
  for (int rank = 0; rank < 3; ++rank) ranks[rank].remove_set(1);
  for (const int rank : {1, 2}) ranks.deliver(rank, ranks.turn(rank));
  const std::vector<Send> removal = ranks.turn(0);
  ranks[1].step_end(1);
  ranks.deliver(0, removal);
  ranks.settle();
  EXPECT_TRUE(ranks[1].idle() && ranks[1].failures().empty());
}

TEST(ProcessSets, RemovingASetThatDoesNotExistFails) {
  Ranks ranks(2);
  ranks.remove_set(7);
  ranks.remove_set(0);
  EXPECT_THAT(ranks[1].failures().at(0).text, StartsWith("process set 7 does not exist"));
  EXPECT_THAT(ranks[1].failures().at(1).text, StartsWith("process set 0 is the world"));
}

TEST(ProcessSets, AreNamedInStallsAndWithWorldRanks) {
  CoordinatorConfig config;
  config.stall_limit = 400ms;
  config.stall_warning = 100ms;
  Ranks ranks(4, config);
  ranks.add_set({1, 3}, "tp0");
  ranks.submit_on({3}, {in_set(1, "x")});
  ranks.fire_timers_until(ranks.now + 1s);
  EXPECT_THAT(ranks[0].warnings().at(0),
              HasSubstr("tensor 'x' of process set 'tp0': submitted by rank 3, but not by rank 1 for"));
  EXPECT_THAT(ranks[3].failures().at(0).text,
              HasSubstr("of tensor 'x' of process set 'tp0': submitted by rank 3, but not by rank 1 within 400 ms"));
  EXPECT_EQ(ranks[1].warnings().size(), 1U);
  EXPECT_TRUE(ranks[2].warnings().empty() && ranks[2].failures().empty());
}

TEST(ProcessSets, AreNamedInMismatches) {
  Ranks ranks(3);
  ranks.add_set({1, 2});
  ranks[1].submit(in_set(1, "x", {1}));
  ranks[2].submit(in_set(1, "x", {2}));
  ranks.settle();
  EXPECT_THAT(ranks[1].failures().at(0).text,
              StartsWith("all_reduce of tensor 'x' of process set 1: ranks disagree: shape [1] on rank 1; shape [2]"));
  EXPECT_EQ(ranks[1].failures(), ranks[2].failures());
}

TEST(ProcessSets, ARankThatLeftIsMissingInItsOwnSetsOnly) {
  Ranks ranks(3);
  ranks.add_set({0, 1});
  ranks.add_set({1, 2});
  for (int step = 0; step < 3; ++step) ranks.step_on({0, 1}, {in_set(1, "x")});
  ranks[0].post(RankLeft{2});
  ranks.submit_on({1}, {in_set(2, "x")});
  ranks.step_on({0, 1}, {in_set(1, "x")});
  EXPECT_TRUE(ranks[0].stream().back().known);
  ASSERT_EQ(ranks[1].failures().size(), 1U);
  EXPECT_THAT(ranks[1].failures()[0].text, StartsWith("tensor 'x' of process set 2: rank 2 has left"));
}

TEST(ProcessSets, WithoutRankZeroTheyEndWithIt) {
  Ranks ranks(3);
  ranks.add_set({1, 2});
  ranks[1].post(RankLeft{0});
  ranks[1].submit(in_set(1, "x"));
  ranks.turn(1);
  ASSERT_EQ(ranks[1].failures().size(), 1U);
  EXPECT_THAT(ranks[1].failures()[0].text, AllOf(StartsWith("tensor 'x' of process set 1: rank 0 has left"),
                                                 HasSubstr("coordinates all process sets")));
}

TEST(ProcessSets, AReportOfASetThatTheRankIsNotInIsRefused) {
  Ranks ranks(2);
  ranks.add_set({0});
  UpMessage report;
  report.applied = 1;
  report.requests = {{in_set(1, "x"), false}};
  Actions actions;
  const auto refusal = [&] {
    try {
      ranks[0].coordinator().on(Received{1, encode(report)}, ranks.now, actions);
    } catch (const ProtocolError& error) {
      return std::string(error.what());
    }
    return std::string("taken");
  };
  EXPECT_THAT(refusal(), HasSubstr("tensor 'x' of process set 1, of which it is no member"));
  report.requests = {{in_set(9, "x"), false}};
  EXPECT_THAT(refusal(), HasSubstr("rank 1 reported something of process set 9, which was never added"));
}

TEST(SendRecv, NeedsItsTwoRanksAndReachesNoOther) {
  Ranks ranks(4);
  ranks.submit_on({1}, {message(0, "x (1 to 3)", 1, 3)});
  EXPECT_TRUE(ranks[1].stream().empty());
  ranks.submit_on({3}, {message(0, "x (1 to 3)", 1, 3)});
  for (const int rank : {1, 3}) {
    ASSERT_EQ(ranks[rank].stream().size(), 1U);
    EXPECT_THAT(ranks[rank].stream()[0].ranks, ElementsAre(1, 3));
  }
  EXPECT_TRUE(ranks[0].stream().empty() && ranks[2].stream().empty());
}

TEST(SendRecv, RootAndPeerAreRanksInTheSet) {
  Ranks ranks(4);
  ranks.add_set({1, 2, 3});
  for (int time = 0; time < 2; ++time) ranks.submit_on({2, 3}, {message(1, "x (2 to 1)", 2, 1)});
  EXPECT_THAT(ranks[3].stream().at(1).ranks, ElementsAre(2, 3));
  EXPECT_EQ(ranks[3].stream(), ranks[2].stream());
}

TEST(SendRecv, TheOrderOfSubmissionIsFreeAndNumbersRiseOnAllRanks) {
  Ranks ranks(3);
  std::vector<TensorSpec> all;
  for (const auto& [from, to] : {std::pair(0, 1), std::pair(1, 2), std::pair(2, 0)}) {
    all.push_back(message(0, "x " + std::to_string(from), from, to));
  }
  for (int rank = 0; rank < 3; ++rank) {
    for (int i = 0; i < 3; ++i) {
      const TensorSpec& spec = all[static_cast<std::size_t>((i + rank) % 3)];
      if (spec.root == rank || spec.peer == rank) ranks[rank].submit(spec);
    }
  }
  ranks.settle();
  for (int rank = 0; rank < 3; ++rank) {
    ASSERT_EQ(ranks[rank].stream().size(), 2U);
    EXPECT_LT(ranks[rank].stream()[0].number, ranks[rank].stream()[1].number);
  }
}

TEST(SendRecv, ToTheSameRankNeedsThisRankOnly) {
  Ranks ranks(2);
  ranks.submit_on({1}, {message(0, "x", 1, 1)});
  EXPECT_THAT(ranks[1].stream().at(0).ranks, ElementsAre(1));
}

TEST(SendRecv, WithoutAReceiverFailsAndNamesBothRanks) {
  CoordinatorConfig config;
  config.stall_limit = 400ms;
  Ranks ranks(3, config);
  ranks.submit_on({0}, {message(0, "x (0 to 2)", 0, 2)});
  ranks.fire_timers_until(ranks.now + 1s);
  EXPECT_THAT(ranks[0].failures().at(0).text,
              AllOf(StartsWith("send_recv from 0 to 2 float32 [256] of tensor 'x (0 to 2)'"),
                    HasSubstr("submitted by rank 0, but not by rank 2 within")));
  EXPECT_TRUE(ranks[1].warnings().empty());
}

TEST(SendRecv, DifferentShapesAreAMismatch) {
  Ranks ranks(3);
  TensorSpec spec = message(0, "x", 1, 2);
  ranks[1].submit(spec);
  spec.shape = {7};
  ranks[2].submit(spec);
  ranks.settle();
  EXPECT_THAT(ranks[1].failures().at(0).text, HasSubstr("shape [256] on rank 1; shape [7] on rank 2"));
}

}  // namespace
}  // namespace horo
