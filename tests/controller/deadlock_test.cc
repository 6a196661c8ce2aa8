// Waiting for a slow rank is no error. Ranks that wait for one another fail by name.
#include "controller/deadlock.h"

#include "tests/controller/ranks.h"

namespace horo {
namespace {

CoordinatorConfig patient(std::chrono::milliseconds warning = 0ms, std::chrono::milliseconds deadlock = 1'000ms) {
  CoordinatorConfig config;
  config.stall_warning = warning;
  config.deadlock_limit = deadlock;
  return config;
}

// The rank submits these tensors, and its one caller waits for them.
void submit_and_wait(Ranks& ranks, int rank, const std::vector<TensorSpec>& specs) {
  ranks.submit_on({rank}, specs);
  ranks[rank].set_waits(ranks.now, {specs});
}

TEST(SlowRank, IsNamedAtGrowingPausesAndFailsNothing) {
  Ranks ranks(2, patient(10s, 60s));
  ranks[1].set_call_sites("evaluate.py:7 score\ntrain.py:60 main");
  submit_and_wait(ranks, 0, {gradient("x")});
  std::vector<std::size_t> warnings;
  for (const auto at : {9s, 1s, 9s, 1s, 19s, 1s, 39s, 1s}) {
    ranks.fire_timers_until(ranks.now + at);
    warnings.push_back(ranks[0].warnings().size());
  }
  EXPECT_THAT(warnings, ElementsAre(0, 1, 1, 2, 2, 3, 3, 4)) << "after 10, 20, 40 and 80 s";
  EXPECT_THAT(
      ranks[0].warnings()[3],
      AllOf(HasSubstr("tensor 'x': submitted by rank 0, but not by rank 1 for 80.0 s."),
            HasSubstr("Rank 1 is at evaluate.py:7 score < train.py:60 main."),
            HasSubstr(
                "A slow rank is no error; ranks that wait for one another are, after 60000 ms (HORO_DEADLOCK_MS)")));
  ranks.fire_timers_until(ranks.now + 6h);
  EXPECT_TRUE(ranks[0].failures().empty());
  EXPECT_LT(ranks[0].warnings().size(), 50U) << "the longest pause is ten minutes";
  ranks[1].submit(gradient("x"));
  ranks.settle();
  EXPECT_EQ(ranks[0].times("x"), 1);
}

TEST(SlowRank, ManyTensorsThatBecomeLateOneByOneAreOneWarning) {
  Ranks ranks(2, patient(10s, 60s));
  for (int i = 0; i < 100; ++i) {
    submit_and_wait(ranks, 0, {gradient("t" + std::to_string(i))});
    ranks.fire_timers_until(ranks.now + 200ms);
  }
  ranks.fire_timers_until(ranks.now + 60s);
  EXPECT_EQ(ranks[0].warnings().size(), 4U) << "after 10, 20, 40 and 80 s";
  EXPECT_THAT(ranks[0].warnings().back(), HasSubstr("and 97 more: submitted by rank 0"));
}

TEST(SlowRank, AnotherSlowRankIsNamedAtOnce) {
  Ranks ranks(3, patient(10s, 60s));
  ranks.submit_on({0, 2}, {gradient("x")});
  ranks.fire_timers_until(ranks.now + 50s);
  const std::size_t before = ranks[0].warnings().size();
  ranks.submit_on({0, 1}, {gradient("y")});
  ranks.fire_timers_until(ranks.now + 10s);
  ASSERT_EQ(ranks[0].warnings().size(), before + 1);
  EXPECT_THAT(ranks[0].warnings().back(), HasSubstr("'y': submitted by ranks 0, 1, but not by rank 2 for 10.0 s"));
}

TEST(SlowRank, TheRanksAreAskedRarely) {
  Ranks ranks(2, patient(10s, 60s));
  submit_and_wait(ranks, 0, {gradient("x")});
  ranks.sent.clear();
  ranks.fire_timers_until(ranks.now + 1h);
  EXPECT_LT(ranks.sent.size(), 2U * 30U) << "a question to rank 1 and its answer, for a warning or a search";
}

TEST(SlowRank, ADepartureFailsAtOnce) {
  Ranks ranks(3, patient());
  submit_and_wait(ranks, 0, {gradient("x")});
  submit_and_wait(ranks, 1, {gradient("x")});
  ranks.fire_timers_until(ranks.now + 1h);
  ASSERT_TRUE(ranks[1].failures().empty());
  ranks[0].post(RankLeft{2});
  ranks.settle();
  EXPECT_THAT(ranks[1].failures().at(0).text, HasSubstr("rank 2 has left"));
}

TEST(Deadlock, TwoRanksThatWaitForEachOtherFailAtTheLimitWithBothCallSites) {
  Ranks ranks(2, patient());
  for (const int rank : {0, 1}) ranks[rank].set_call_sites("rank" + std::to_string(rank) + ".py:1 main");
  submit_and_wait(ranks, 0, {gradient("x")});
  submit_and_wait(ranks, 1, {gradient("y")});
  ranks.fire_timers_until(ranks.now + 999ms);
  EXPECT_TRUE(ranks[0].failures().empty());
  ranks.fire_timers_until(ranks.now + 1ms);
  ASSERT_EQ(ranks[0].failures().size(), 1U);
  EXPECT_THAT(ranks[0].failures()[0].text,
              AllOf(HasSubstr("tensor 'x': submitted by rank 0, but not by rank 1. This is a deadlock: ranks 0, 1 wait "
                              "for one another, and all of their callers have waited for 1000 ms (HORO_DEADLOCK_MS). "
                              "Rank 1 waits for 'y' (not submitted by rank 0)."),
                    HasSubstr("rank0.py:1 main"), HasSubstr("rank1.py:1 main")));
  EXPECT_THAT(ranks[1].failures().at(0).text, HasSubstr("tensor 'y': submitted by rank 1, but not by rank 0."));
  ranks[0].set_waits(ranks.now, {}), ranks[1].set_waits(ranks.now, {});
  ranks.submit({gradient("x"), gradient("y")});
  EXPECT_EQ(ranks[1].times("x") + ranks[1].times("y"), 2);
}

TEST(Deadlock, NoneIsFoundWithALimitOfZero) {
  Ranks ranks(2, patient(0ms, 0ms));
  submit_and_wait(ranks, 0, {gradient("x")});
  submit_and_wait(ranks, 1, {gradient("y")});
  ranks.fire_timers_until(ranks.now + 6h);
  EXPECT_TRUE(ranks[0].failures().empty() && ranks[1].failures().empty());
}

TEST(Deadlock, ABusyRankThatTheTensorsNeedAsWellIsNoProof) {
  Ranks ranks(3, patient());
  submit_and_wait(ranks, 0, {gradient("x")});
  submit_and_wait(ranks, 1, {gradient("y")});
  ranks.fire_timers_until(ranks.now + 1h);
  EXPECT_TRUE(ranks[0].failures().empty() && ranks[1].failures().empty());
  submit_and_wait(ranks, 2, {gradient("x")});
  ranks.fire_timers_until(ranks.now + 10min);
  EXPECT_THAT(ranks[0].failures().at(0).text, HasSubstr("but not by rank 1. This is a deadlock: ranks 0-2 wait"));
  EXPECT_EQ(ranks[1].failures().at(0).name, "y");
}

TEST(Deadlock, TheClockBeginsAnewWhenARankSubmits) {
  Ranks ranks(2, patient());
  submit_and_wait(ranks, 0, {gradient("x")});
  submit_and_wait(ranks, 1, {gradient("y")});
  ranks.fire_timers_until(ranks.now + 700ms);
  ranks.submit_on({1}, {gradient("z")});
  ranks[1].set_waits(ranks.now, {{gradient("y"), gradient("z")}});
  ranks.fire_timers_until(ranks.now + 990ms);
  EXPECT_TRUE(ranks[0].failures().empty() && ranks[1].failures().empty());
  ranks.fire_timers_until(ranks.now + 50ms);
  EXPECT_EQ(ranks[0].failures().size(), 1U);
  EXPECT_EQ(ranks[1].failures().size(), 2U);
}

// Rank 0 waits for rank 1, rank 1 for rank 2, and rank 2 for rank 0, each in a set of two; rank 3 is busy.
TEST(Deadlock, ACycleOfThreeRanksFailsBesideABusyRank) {
  Ranks ranks(4, patient());
  for (const auto& members : {std::vector{0, 1}, {1, 2}, {0, 2}}) ranks.add_set(members);
  submit_and_wait(ranks, 0, {in_set(1, "x")});
  submit_and_wait(ranks, 1, {in_set(2, "y")});
  submit_and_wait(ranks, 2, {in_set(3, "z")});
  ranks[3].submit(gradient("w"));
  ranks.settle();
  ranks.fire_timers_until(ranks.now + 1s);
  EXPECT_THAT(ranks[0].failures().at(0).text, HasSubstr("deadlock: ranks 0-2 wait for one another"));
  EXPECT_EQ(ranks[1].failures().at(0).name, "y");
  EXPECT_EQ(ranks[2].failures().at(0).name, "z");
  EXPECT_TRUE(ranks[3].failures().empty());
}

// Rank 3 waits for a tensor that rank 0 has not submitted, and no rank waits for rank 3.
TEST(Deadlock, ARankThatWaitsForTheCycleFailsWithIt) {
  Ranks ranks(4, patient());
  ranks.add_set({0, 1});
  ranks.add_set({0, 3});
  submit_and_wait(ranks, 0, {in_set(1, "x")});
  submit_and_wait(ranks, 1, {in_set(1, "y")});
  submit_and_wait(ranks, 3, {in_set(2, "z")});
  ranks.fire_timers_until(ranks.now + 1s);
  EXPECT_EQ(ranks[0].failures().size() + ranks[1].failures().size(), 2U);
  EXPECT_EQ(ranks[3].failures().at(0).name, "z");
}

TEST(Deadlock, ACallerThatDoesNotWaitIsNoProof) {
  Ranks ranks(2, patient());
  submit_and_wait(ranks, 0, {gradient("x")});
  submit_and_wait(ranks, 1, {gradient("y")});
  ranks[1].set_waits(ranks.now, {});
  ranks.fire_timers_until(ranks.now + 1h);
  EXPECT_TRUE(ranks[0].failures().empty());
}

TEST(Deadlock, EveryThreadOfARankMustBeStuck) {
  Ranks ranks(3, patient());
  ranks.add_set({1, 2});
  submit_and_wait(ranks, 0, {gradient("x")});
  submit_and_wait(ranks, 2, {gradient("x")});
  ranks.submit_on({1}, {gradient("y"), in_set(1, "z")});
  ranks[1].set_waits(ranks.now, {{gradient("y")}, {in_set(1, "z")}});
  ranks[2].set_waits(ranks.now, {});
  ranks.fire_timers_until(ranks.now + 1h);
  EXPECT_TRUE(ranks[0].failures().empty()) << "rank 2 may submit z, and then a thread of rank 1 continues";
  ranks[2].set_waits(ranks.now, {{gradient("x")}});
  ranks.fire_timers_until(ranks.now + 1h);
  EXPECT_EQ(ranks[0].failures().size(), 1U);
  EXPECT_EQ(ranks[1].failures().size(), 2U);
}

// The threads of rank 1 wait for a collective that runs.
TEST(Deadlock, AWaitForACollectiveThatRunsIsNoProof) {
  Ranks ranks(2, patient());
  ranks.lanes_stand = true;
  ranks.submit_on({0, 1}, {gradient("y")});
  submit_and_wait(ranks, 0, {gradient("x")});
  ranks[1].set_waits(ranks.now, {{gradient("y")}});
  ranks.fire_timers_until(ranks.now + 1h);
  EXPECT_TRUE(ranks[0].failures().empty());
}

TEST(Deadlock, ARankThatDoesNotAnswerIsNoProof) {
  Ranks ranks(2, patient());
  submit_and_wait(ranks, 0, {gradient("x")});
  submit_and_wait(ranks, 1, {gradient("y")});
  ranks[1].set_call_sites(std::nullopt);
  ranks.fire_timers_until(ranks.now + 1h);
  EXPECT_TRUE(ranks[0].failures().empty());
}

TEST(Deadlock, AKnownPlanIsDissolvedAndItsTensorsFail) {
  Ranks ranks(2, patient());
  const std::vector<TensorSpec> specs = {gradient("a"), gradient("b")};
  learn_plans(ranks, specs);
  submit_and_wait(ranks, 0, specs);
  submit_and_wait(ranks, 1, {gradient("y")});
  ranks.fire_timers_until(ranks.now + 2s);
  EXPECT_EQ(ranks[0].failures().size(), 2U);
  EXPECT_EQ(ranks[1].failures().at(0).name, "y");
}

// Rank 1 has submitted a, which rank 0 waits for as a part of a plan: no deadlock, although each waits.
TEST(Deadlock, APlanIsNoDeadlockIfItsTensorsAreThere) {
  Ranks ranks(2, patient());
  learn_plans(ranks, {gradient("a"), gradient("b")});
  ranks[0].submit(gradient("a"));
  ranks.submit_on({0}, {gradient("y")});
  ranks.submit_on({1}, {gradient("a"), gradient("b")});
  ranks[0].set_waits(ranks.now, {{gradient("y")}});
  ranks[1].set_waits(ranks.now, {{gradient("a")}});
  ranks.fire_timers_until(ranks.now + 20s);
  EXPECT_EQ(ranks[1].times("a"), 4);
  EXPECT_TRUE(ranks[0].failures().empty() && ranks[1].failures().empty());
}

TEST(Deadlock, AJoinIsAWaitForTheOtherMembers) {
  Ranks ranks(3, patient());
  ranks.add_set({0, 1});
  ranks[0].join(1);
  ranks.settle();
  ranks[0].set_waits(ranks.now, {{in_set(1, "join")}});
  submit_and_wait(ranks, 1, {gradient("x")});
  submit_and_wait(ranks, 2, {gradient("x")});
  ranks.fire_timers_until(ranks.now + 1s);
  EXPECT_THAT(ranks[1].failures().at(0).text,
              HasSubstr("Rank 0 waits for join of process set 1 (not submitted by rank 1)."));
}

TEST(Deadlock, UnitsOfDifferentTensorsFail) {
  Ranks ranks(2, patient());
  const auto unit_of = [](const char* name) {
    TensorSpec spec = gradient(name);
    spec.unit = "u";
    spec.unit_size = 2;
    spec.stepwise = false;
    return spec;
  };
  submit_and_wait(ranks, 0, {unit_of("a"), unit_of("b")});
  submit_and_wait(ranks, 1, {unit_of("a"), unit_of("c")});
  for (const int rank : {0, 1}) ranks[rank].set_waits(ranks.now, {{unit_of("a")}});
  ranks.fire_timers_until(ranks.now + 1s);
  EXPECT_EQ(ranks[0].failures().size(), 2U);
  EXPECT_EQ(ranks[1].failures().size(), 2U);
}

// The ranks submit the same tensors in orders of their own, and wait for each: every rank that has stopped waits, so a
// world that does not finish is a deadlock.
TEST(Deadlock, AWorldOfWaitingRanksNeverStaysStuck) {
  std::size_t failures = 0;
  for (std::uint64_t seed = 1; seed <= 200; ++seed) {
    std::mt19937_64 random(seed);
    std::vector<Program> programs(2 + seed % 5);
    for (Program& program : programs) {
      std::vector<std::string> names = {"a", "b", "c", "d"};
      if (seed % 4 != 0) std::swap(names[random() % 4], names[random() % 4]);
      for (const std::string& name : names) {
        program.emplace_back(SubmitCall{gradient(name)});
        if (random() % 2 == 0) program.emplace_back(WaitCall{});
      }
      program.emplace_back(WaitCall{});
      program.emplace_back(LeaveCall{});
    }
    SimulationConfig config = world_of(static_cast<int>(programs.size()), seed);
    config.coordinator.deadlock_limit = 100ms;
    Simulation world(config, programs);
    world.run();
    ASSERT_EQ(world.stuck(), "") << seed;
    for (std::size_t rank = 0; rank < programs.size(); ++rank) {
      const std::size_t failed = world.engine(static_cast<int>(rank)).failures().size();
      ASSERT_TRUE(failed == 0 || seed % 4 != 0) << seed;
      failures += failed;
    }
  }
  EXPECT_GT(failures, 100U);
}

// Rank 1 pauses for many times the limits, at any place; all ranks make the same calls.
TEST(Deadlock, SlowRanksNeverFail) {
  for (std::uint64_t seed = 1; seed <= 200; ++seed) {
    std::mt19937_64 random(seed);
    std::vector<Program> programs(4);
    for (Program& program : programs) {
      for (const char* name : {"a", "b", "c", "d"}) {
        if (random() % 3 == 0) program.emplace_back(PauseCall{std::chrono::milliseconds(random() % 1000)});
        program.emplace_back(SubmitCall{gradient(name)});
        if (random() % 2 == 0) program.emplace_back(WaitCall{});
      }
      program.emplace_back(WaitCall{});
      program.emplace_back(EndStepCall{});
      const Program step = program;
      for (int i = 0; i < 3; ++i) program.insert(program.end(), step.begin(), step.end());
    }
    SimulationConfig config = world_of(4, seed);
    config.coordinator.deadlock_limit = 20ms;
    config.coordinator.stall_warning = 5ms;
    Simulation world(config, programs);
    world.run();
    ASSERT_EQ(world.stuck(), "") << seed;
    for (int rank = 0; rank < 4; ++rank) ASSERT_TRUE(world.engine(rank).failures().empty()) << seed;
  }
}

}  // namespace
}  // namespace horo
