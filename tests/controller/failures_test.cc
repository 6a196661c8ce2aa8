// What happens when ranks disagree, are missing, are late or leave: an end for everybody, and then work goes on.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "horo/base/error.h"
#include "tests/controller/ranks.h"

namespace horo {
namespace {

using namespace std::chrono_literals;
using testing::ElementsAre;
using testing::HasSubstr;

struct Disagreement {
  const char* words;
  void (*change)(TensorSpec&);
};
constexpr Disagreement kDisagreements[] = {
    {"all_reduce on ranks 0, 2; barrier on rank 1", [](TensorSpec& s) { s.kind = CollectiveKind::kBarrier; }},
    {"float32 on ranks 0, 2; int32 on rank 1", [](TensorSpec& s) { s.dtype = DType::kInt32; }},
    {"average on ranks 0, 2; max on rank 1", [](TensorSpec& s) { s.op = ReduceOp::kMax; }},
    {"order canonical on ranks 0, 2; order fast on rank 1", [](TensorSpec& s) { s.order = Order::kFast; }},
    {"prescale 1 on ranks 0, 2; prescale 0.5 on rank 1", [](TensorSpec& s) { s.prescale = 0.5; }},
    {"postscale 1 on ranks 0, 2; postscale 2 on rank 1", [](TensorSpec& s) { s.postscale = 2; }},
    {"shape [256] on ranks 0, 2; shape [16, 16] on rank 1",
     [](TensorSpec& s) {
       s.shape = {16, 16};
     }},
    {"named on ranks 0, 2; unnamed on rank 1", [](TensorSpec& s) { s.once = true; }},
};

TEST(Mismatch, OfEveryKindReachesAllRanksWithTheSameTextAndWorkGoesOn) {
  for (const Disagreement& disagreement : kDisagreements) {
    Ranks ranks(3);
    ranks.submit({gradient("y")});
    for (int rank = 0; rank < 3; ++rank) {
      TensorSpec spec = gradient("x");
      if (rank == 1) disagreement.change(spec);
      ranks[rank].submit(spec);
    }
    ranks.submit({gradient("y")});
    for (int rank = 0; rank < 3; ++rank) {
      ASSERT_EQ(ranks[rank].failures().size(), 1U) << disagreement.words;
      EXPECT_EQ(ranks[rank].failures()[0], ranks[0].failures()[0]);
      EXPECT_THAT(ranks[rank].failures()[0].text, HasSubstr(disagreement.words));
    }
    ranks.submit({gradient("x")});
    EXPECT_EQ(ranks[2].times("x") + ranks[2].times("y"), 3) << disagreement.words;
  }
}

TEST(Mismatch, OfTheRootOfABroadcastIsSaid) {
  Ranks ranks(2);
  for (int rank = 0; rank < 2; ++rank) {
    TensorSpec spec = gradient("x");
    spec.kind = CollectiveKind::kBroadcast;
    spec.root = rank;
    ranks[rank].submit(spec);
  }
  ranks.settle();
  EXPECT_THAT(ranks[1].failures().at(0).text, HasSubstr("root 0 on rank 0; root 1 on rank 1"));
}

TEST(Mismatch, OfOneRankAgainstANumberThatAllKnowIsFoundToo) {
  Ranks ranks(2);
  learn_plans(ranks, {gradient("x"), gradient("y")});
  ranks[0].submit(gradient("x"));
  ranks[1].submit(gradient("x", {7}));
  for (int rank = 0; rank < 2; ++rank) ranks[rank].submit(gradient("y"));
  ranks[1].nudge();
  ranks.settle();
  EXPECT_THAT(ranks[0].failures().at(0).text, HasSubstr("shape [256] on rank 0; shape [7] on rank 1"));
  EXPECT_EQ(ranks[1].failures(), ranks[0].failures());
  EXPECT_EQ(ranks[1].times("y"), 4);
  ranks.step({gradient("x"), gradient("y")});
  EXPECT_EQ(ranks[1].times("x"), 4);
}

TEST(Nudge, AMissingTensorHoldsUpNobodyWhoWaitsForAnother) {
  Ranks ranks(3);
  const std::vector<TensorSpec> all = {gradient("a"), gradient("b"), gradient("c")};
  learn_plans(ranks, all);
  for (int rank = 0; rank < 3; ++rank) {
    ranks[rank].submit(gradient("a"));
    ranks[rank].submit(gradient("c"));
    if (rank == 2) ranks[rank].submit(gradient("b"));  // complete there
  }
  ranks.settle();
  EXPECT_EQ(ranks[2].times("a"), 3);
  ranks[1].nudge();
  ranks.settle();
  EXPECT_EQ(ranks[2].times("a"), 4);
  EXPECT_EQ(ranks[2].times("c"), 4);
  EXPECT_EQ(ranks[2].times("b"), 3);
  for (int rank = 0; rank < 2; ++rank) ranks[rank].submit(gradient("b"));
  ranks.settle();
  EXPECT_EQ(ranks[2].times("b"), 4);
  EXPECT_EQ(ranks[2].stream(), ranks[0].stream());
}

TEST(Nudge, ATensorWhosePlansDissolveThreeTimesIsInNoneAnyMore) {
  Ranks ranks(2);
  const std::vector<TensorSpec> all = {gradient("a"), gradient("b")};
  for (int round = 0; round < 3; ++round) {
    learn_plans(ranks, all);
    ASSERT_TRUE(ranks[0].stream().back().known);
    for (int rank = 0; rank < 2; ++rank) ranks[rank].submit(gradient("a")), ranks[rank].nudge();
    ranks.settle();
  }
  learn_plans(ranks, all);
  EXPECT_FALSE(ranks[0].stream().back().known);
}

TEST(Left, WhatMissesTheRankFailsAtOnceNowAndLater) {
  Ranks ranks(3);
  ranks[0].submit(gradient("x"));
  ranks[1].submit(gradient("x"));
  ranks.settle();
  ranks[0].post(RankLeft{2});
  ranks.settle();
  ranks[1].submit(gradient("y"));
  ranks.settle();
  const std::string text = "rank 2 has left (horo.shutdown) and will not submit ";
  EXPECT_THAT(ranks[0].failures(), ElementsAre(Failure{"x", text + "'x'"}));
  EXPECT_THAT(ranks[1].failures(), ElementsAre(Failure{"x", text + "'x'"}, Failure{"y", text + "'y'"}));
}

TEST(Left, WhatTheRankSubmittedBeforeIsReleased) {
  Ranks ranks(2);
  ranks[1].submit(gradient("x"));
  ranks.settle();
  ranks[0].post(RankLeft{1});
  ranks[0].submit(gradient("x"));
  ranks.settle();
  EXPECT_EQ(ranks[0].times("x"), 1);
}

TEST(Left, APlanFailsTensorByTensor) {
  Ranks ranks(3);
  learn_plans(ranks, {gradient("a"), gradient("b")});
  ranks[1].submit(gradient("a"));
  ranks[1].submit(gradient("b"));
  ranks.settle();
  ranks[0].post(RankLeft{2});
  ranks.settle();
  EXPECT_EQ(ranks[1].failures().size(), 2U);
  ranks[0].submit(gradient("a"));
  ranks.settle();
  EXPECT_EQ(ranks[0].failures().size(), 1U);
}

TEST(Left, APlanThatTheRankStillCompletedFailsTheNextTime) {
  Ranks ranks(2);
  const std::vector<TensorSpec> specs = {gradient("a"), gradient("b")};
  learn_plans(ranks, specs);
  for (const TensorSpec& spec : specs) ranks[1].submit(spec);
  ranks.settle();
  ranks[0].post(RankLeft{1});
  for (int time = 0; time < 2; ++time) {
    for (const TensorSpec& spec : specs) ranks[0].submit(spec);
    ranks.settle();
  }
  EXPECT_EQ(ranks[0].times("a"), 4);
  EXPECT_EQ(ranks[0].failures().size(), 2U);
}

TEST(Left, WithoutTheLeaderEverythingFails) {
  Ranks ranks(2);
  learn_plans(ranks, {gradient("a"), gradient("b")});
  ranks[1].submit(gradient("a"));
  ranks[1].submit(gradient("b"));
  ranks[1].submit(gradient("c"));
  ranks.turn(1);
  ranks[1].post(RankLeft{0});
  ranks[1].submit(gradient("d"));
  ranks.turn(1);
  ASSERT_EQ(ranks[1].failures().size(), 4U);
  EXPECT_EQ(ranks[1].failures()[3].text, "rank 0 has left (horo.shutdown) and will not submit 'd'");
  EXPECT_TRUE(ranks[1].idle());
}

CoordinatorConfig impatient() {
  CoordinatorConfig config;
  config.stall_limit = 400ms;
  return config;
}

TEST(Stall, NamesTensorRanksAndLimitOnAllThatSubmittedIt) {
  Ranks ranks(3, impatient());
  ranks[0].submit(gradient("x"));
  ranks[2].submit(gradient("x"));
  ranks.settle();
  ranks.fire_timers_until(ranks.now + 399ms);
  EXPECT_TRUE(ranks[0].failures().empty());
  ranks.fire_timers_until(ranks.now + 1ms);
  ASSERT_EQ(ranks[2].failures().size(), 1U);
  EXPECT_EQ(ranks[2].failures(), ranks[0].failures());
  EXPECT_TRUE(ranks[1].failures().empty());
  EXPECT_THAT(ranks[0].failures()[0].text,
              HasSubstr("tensor 'x': submitted by ranks 0, 2, but not by rank 1 within 400 ms (HORO_STALL_LIMIT_MS)"));
}

TEST(Stall, ATimerThatFiresEarlyChangesNothing) {
  Ranks ranks(2, impatient());
  ranks[0].submit(gradient("x"));
  ranks.settle();
  ranks[0].post(TimerFired{});
  ranks.settle();
  EXPECT_TRUE(ranks[0].failures().empty());
  EXPECT_EQ(ranks.timer, ranks.now + 400ms);
}

TEST(Stall, AStalledPlanBlamesOnlyForWhatIsMissing) {
  Ranks ranks(2, impatient());
  learn_plans(ranks, {gradient("a"), gradient("b"), gradient("c")});
  for (const char* name : {"a", "b", "c"}) ranks[0].submit(gradient(name));
  ranks[1].submit(gradient("a"));
  ranks[1].submit(gradient("c"));
  ranks.settle();
  ranks.fire_timers_until(ranks.now + 1s);
  EXPECT_EQ(ranks[1].times("a") + ranks[1].times("c"), 8);
  ASSERT_EQ(ranks[0].failures().size(), 1U);
  EXPECT_EQ(ranks[0].failures()[0].name, "b");
  EXPECT_TRUE(ranks[1].failures().empty());
}

TEST(Stall, ADissolvedPlanGivesNoMoreTime) {
  Ranks ranks(2, impatient());
  learn_plans(ranks, {gradient("a"), gradient("b")});
  for (const char* name : {"a", "b"}) ranks[0].submit(gradient(name));
  ranks.settle();
  ranks.now += 300ms;
  ranks[1].submit(gradient("a"));
  ranks[1].nudge();
  ranks.settle();
  ranks.fire_timers_until(ranks.now + 100ms);
  ASSERT_EQ(ranks[0].failures().size(), 1U);
  EXPECT_EQ(ranks[0].failures()[0].name, "b");
}

TEST(Stall, TheNextInstanceIsFree) {
  Ranks ranks(2, impatient());
  ranks[0].submit(gradient("x"));
  ranks.settle();
  ranks.fire_timers_until(ranks.now + 1s);
  ranks.submit({gradient("x")});
  EXPECT_EQ(ranks[0].times("x"), 1);
  ranks.submit({gradient("x")});
  EXPECT_EQ(ranks[1].times("x"), 2);
}

// Rank 1's report and the failure of the same tensor pass each other on the way.
TEST(Stall, AReportThatCrossesTheFailureFailsWithIt) {
  Ranks ranks(2, impatient());
  ranks[0].submit(gradient("x"));
  ranks.settle();
  ranks[1].submit(gradient("x"));
  const std::vector<Send> report = ranks.turn(1);
  ranks.now += 1s;
  ranks[0].post(TimerFired{});
  ranks.deliver(0, ranks.turn(0));
  ranks.deliver(1, report);
  ranks.settle();
  ASSERT_EQ(ranks[1].failures().size(), 1U);
  EXPECT_EQ(ranks[1].failures(), ranks[0].failures());
  ranks.submit({gradient("x")});
  EXPECT_EQ(ranks[1].times("x"), 1);
  EXPECT_TRUE(ranks[0].idle() && ranks[1].idle());
}

TEST(Stall, AReportThatTheFailureOvertakesInTheSameTurnFailsWithIt) {
  Ranks ranks(2, impatient());
  ranks[0].submit(gradient("x"));
  ranks.settle();
  ranks[1].submit(gradient("x"));
  ranks.now += 1s;
  ranks[0].post(TimerFired{});
  ranks.deliver(0, ranks.turn(0));
  ranks.settle();
  EXPECT_EQ(ranks[1].failures(), ranks[0].failures());
  ranks.submit({gradient("x")});
  EXPECT_EQ(ranks[1].times("x"), 1);
}

// Rank 5 alone does not submit x before the others gave up.
std::vector<Program> programs_with_a_late_rank() {
  std::vector<Program> programs(8);
  for (int rank = 0; rank < 8; ++rank) {
    Program& program = programs[static_cast<std::size_t>(rank)];
    program.emplace_back(SubmitCall{gradient("a")});
    if (rank != 5) program.emplace_back(SubmitCall{gradient("x")});
    program.emplace_back(WaitCall{});
    if (rank == 5) program.emplace_back(PauseCall{200ms});
    program.emplace_back(SubmitCall{gradient("x")});
    program.emplace_back(WaitCall{});
  }
  return programs;
}

TEST(Stall, IsToldInVirtualTimeUnderAnyDelays) {
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    SimulationConfig config = world_of(8, seed);
    config.coordinator.stall_limit = 150ms;
    Simulation world(config, programs_with_a_late_rank());
    world.run();
    ASSERT_EQ(world.stuck(), "");
    EXPECT_THAT(world.hall(7).failures().at(0).text, HasSubstr("but not by rank 5 within 150 ms"));
    EXPECT_EQ(world.hall(5).times("x"), 1);
  }
}

}  // namespace
}  // namespace horo
