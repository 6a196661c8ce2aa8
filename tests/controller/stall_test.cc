// A tensor that some ranks submit and others do not: a warning, then a failure that names the missing ranks, what they
// wait for instead, and the call sites.
#include "controller/stall_texts.h"
#include "tests/controller/ranks.h"

namespace horo {
namespace {

CoordinatorConfig impatient() {
  CoordinatorConfig config;
  config.stall_limit = 400ms;
  config.stall_warning = 100ms;
  return config;
}

TEST(Stall, TheErrorNamesTensorRanksAndLimitOnAllRanksThatSubmittedIt) {
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
  EXPECT_EQ(ranks.timer, ranks.now + 100ms);
}

TEST(Stall, AStalledPlanFailsOnlyItsMissingTensors) {
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

TEST(Stall, DissolvingAPlanDoesNotExtendTheLimit) {
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

TEST(Stall, TheNextInstanceOfAFailedTensorRuns) {
  Ranks ranks(2, impatient());
  ranks[0].submit(gradient("x"));
  ranks.settle();
  ranks.fire_timers_until(ranks.now + 1s);
  ranks.submit({gradient("x")});
  EXPECT_EQ(ranks[0].times("x"), 1);
  ranks.submit({gradient("x")});
  EXPECT_EQ(ranks[1].times("x"), 2);
}

// Rank 1's report and the failure of the same tensor are under way at the same time.
TEST(Stall, AReportThatCrossesTheFailureFailsWithIt) {
  Ranks ranks(2, impatient());
  ranks[0].submit(gradient("x"));
  ranks.settle();
  ranks.fire_timers_until(ranks.now + 399ms);
  ranks[1].submit(gradient("x"));
  const std::vector<Send> report = ranks.turn(1);
  ranks.now += 1ms;
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

TEST(Stall, AReportInTheSameTurnAsTheFailureFailsWithIt) {
  Ranks ranks(2, impatient());
  ranks[0].submit(gradient("x"));
  ranks.settle();
  ranks.fire_timers_until(ranks.now + 399ms);
  ranks[1].submit(gradient("x"));
  ranks.now += 1ms;
  ranks[0].post(TimerFired{});
  ranks.deliver(0, ranks.turn(0));
  ranks.settle();
  EXPECT_EQ(ranks[1].failures(), ranks[0].failures());
  ranks.submit({gradient("x")});
  EXPECT_EQ(ranks[1].times("x"), 1);
}

TEST(Stall, TheWarningIsOnRankZeroOnceAndNamesWhatTheMissingRankWaitsFor) {
  Ranks ranks(3, impatient());
  for (const int rank : {0, 1}) ranks[rank].submit(gradient("x"));
  ranks[2].submit(gradient("b"));
  ranks.settle();
  ranks.fire_timers_until(ranks.now + 99ms);
  EXPECT_TRUE(ranks[0].warnings().empty());
  ranks.fire_timers_until(ranks.now + 1ms);
  ASSERT_EQ(ranks[0].warnings().size(), 1U);
  EXPECT_THAT(ranks[0].warnings()[0],
              AllOf(HasSubstr("tensor 'x': submitted by ranks 0, 1, but not by rank 2 for 0.1 s"),
                    HasSubstr("Rank 2 waits for 'b' (not submitted by ranks 0, 1)."),
                    HasSubstr("tensor 'b': submitted by rank 2, but not by ranks 0, 1")));
  EXPECT_TRUE(ranks[1].warnings().empty() && ranks[2].warnings().empty());
}

TEST(Stall, ManyTensorsShareOneWarning) {
  Ranks ranks(2, impatient());
  for (int i = 0; i < 500; ++i) {
    ranks[0].submit(gradient("t" + std::to_string(i)));
    if (i % 100 == 0) ranks.settle(), ranks.now += 1ms;
  }
  ranks.settle();
  ranks.fire_timers_until(ranks.now + 150ms);
  ASSERT_EQ(ranks[0].warnings().size(), 1U);
  EXPECT_THAT(ranks[0].warnings()[0], StartsWith("tensors 't0', 't1', 't2' and 497 more: submitted by rank 0"));
}

TEST(Stall, TheWarningOfAPlanDoesNotDissolveIt) {
  Ranks ranks(2, impatient());
  const std::vector<TensorSpec> specs = {gradient("a"), gradient("b")};
  learn_plans(ranks, specs);
  for (const TensorSpec& spec : specs) ranks[0].submit(spec);
  ranks.settle();
  ranks.fire_timers_until(ranks.now + 150ms);
  ASSERT_EQ(ranks[0].warnings().size(), 1U);
  EXPECT_THAT(ranks[0].warnings()[0], HasSubstr("'a', 'b': submitted by rank 0, but not all of them by rank 1"));
  for (const TensorSpec& spec : specs) ranks[1].submit(spec);
  ranks.settle();
  EXPECT_TRUE(ranks[1].stream().back().known);
}

// Rank 0 has a, reports it with its plan, and waits for y before it submits b; rank 1 waits for a before y.
TEST(Stall, TheWarningDissolvesAPlanThatRanksWaitForInACycle) {
  Ranks ranks(2, impatient());
  learn_plans(ranks, {gradient("a"), gradient("b")});
  ranks[0].submit(gradient("a"));
  ranks[0].submit(gradient("y"));
  ranks[1].submit(gradient("a"));
  ranks[1].submit(gradient("b"));
  ranks.settle();
  EXPECT_EQ(ranks[1].times("a"), 3);
  ranks.fire_timers_until(ranks.now + 100ms);
  EXPECT_EQ(ranks[1].times("a"), 4);
  ranks[1].submit(gradient("y"));
  ranks[0].submit(gradient("b"));
  ranks.settle();
  EXPECT_TRUE(ranks[0].idle() && ranks[1].idle());
  EXPECT_TRUE(ranks[0].failures().empty());
}

TEST(Stall, AWarningTimeOfZeroDisablesWarnings) {
  CoordinatorConfig config = impatient();
  config.stall_warning = 0ms;
  Ranks ranks(2, config);
  ranks[0].submit(gradient("x"));
  ranks.settle();
  ranks.fire_timers_until(ranks.now + 1s);
  EXPECT_TRUE(ranks[0].warnings().empty());
  EXPECT_EQ(ranks[0].failures().size(), 1U);
}

TEST(Stall, TheErrorHasTheCallSitesOfBothSides) {
  Ranks ranks(3, impatient());
  for (const int rank : {0, 2}) ranks[rank].set_call_sites("train.py:41 step\ntrain.py:60 main");
  ranks[1].set_call_sites("evaluate.py:7 score");
  for (const int rank : {0, 2}) ranks[rank].submit(gradient("x"));
  ranks.settle();
  ranks.fire_timers_until(ranks.now + 400ms);
  ASSERT_EQ(ranks[2].failures().size(), 1U);
  EXPECT_EQ(ranks[2].failures(), ranks[0].failures());
  EXPECT_THAT(ranks[0].failures()[0].text,
              HasSubstr("\nranks 0, 2, which submitted it, are here:\n  train.py:41 step\n  train.py:60 main"
                        "\nrank 1, which did not, is here:\n  evaluate.py:7 score"));
  EXPECT_THAT(ranks[1].warnings(), ElementsAre(ranks[0].failures()[0].text));
}

TEST(Stall, WaitsForAnswersUntilTheAnswerTimeout) {
  Ranks ranks(2, impatient());
  ranks[1].set_call_sites(std::nullopt);
  ranks[0].submit(gradient("x"));
  ranks.settle();
  ranks.fire_timers_until(ranks.now + 1200ms);
  EXPECT_TRUE(ranks[0].failures().empty());
  ranks.fire_timers_until(ranks.now + 100ms);
  ASSERT_EQ(ranks[0].failures().size(), 1U);
  EXPECT_THAT(ranks[0].failures()[0].text, HasSubstr("rank 1 did not answer within 1000 ms (HORO_ANSWER_TIMEOUT_MS)"));
  EXPECT_THAT(ranks[0].failures()[0].text, HasSubstr("holds the GIL"));
}

TEST(Stall, FailsWithTheLastAnswerAfterTheLimit) {
  Ranks ranks(2, impatient());
  ranks[1].set_call_sites(std::nullopt);
  ranks[0].submit(gradient("x"));
  ranks.settle();
  ranks.fire_timers_until(ranks.now + 500ms);
  EXPECT_TRUE(ranks[0].failures().empty());
  ranks[1].post(Diagnosed{2, "late.py:1 main"});
  ranks.settle();
  ranks.fire_timers_until(ranks.now);
  ASSERT_EQ(ranks[0].failures().size(), 1U);
  EXPECT_THAT(ranks[0].failures()[0].text, HasSubstr("late.py:1 main"));
}

TEST(Stall, TensorsThatMissTheSameRanksShareOneText) {
  Ranks ranks(2, impatient());
  for (int i = 0; i < 100; ++i) ranks[1].submit(gradient("t" + std::to_string(i)));
  ranks.settle();
  ranks.sent.clear();
  ranks[0].set_call_sites(std::string(kMaxAnswerBytes, 'x'));
  ranks.fire_timers_until(ranks.now + 400ms);
  ASSERT_EQ(ranks[1].failures().size(), 100U);
  EXPECT_THAT(ranks[1].failures()[99].text, AllOf(HasSubstr("tensor 't99': submitted by rank 1"), HasSubstr("xxx")));
  std::size_t bytes = 0;
  for (const Send& send : ranks.sent) bytes += send.bytes.size();
  EXPECT_LT(bytes, 20'000U);
}

// Every rank counts its unnamed calls. A failed call also counts on the rank that has not made it.
TEST(Stall, AnUnnamedCallFailsOnTheMissingRankWhenItIsMade) {
  Ranks ranks(2, impatient());
  TensorSpec seventh = gradient("all_reduce#7");
  seventh.once = true;
  TensorSpec eighth = gradient("all_reduce#8");
  eighth.once = true;
  ranks[0].submit(seventh);
  ranks.settle();
  ranks.fire_timers_until(ranks.now + 400ms);
  ranks[0].submit(eighth);
  ranks[1].submit(seventh);
  ranks[1].submit(eighth);
  ranks.settle();
  EXPECT_EQ(ranks[1].failures(), ranks[0].failures());
  EXPECT_EQ(ranks[0].failures().size(), 1U);
  EXPECT_EQ(ranks[1].times("all_reduce#8"), 1);
  EXPECT_TRUE(ranks[0].idle() && ranks[1].idle());
}

TEST(Stall, NoAnswerIsExpectedOfARankThatLeft) {
  Ranks ranks(3, impatient());
  ranks[1].set_call_sites(std::nullopt);
  ranks[2].set_call_sites(std::nullopt);
  ranks[0].submit(gradient("x"));
  ranks[1].submit(gradient("x"));
  ranks.settle();
  ranks.fire_timers_until(ranks.now + 350ms);
  ranks[0].post(RankLeft{2});
  ranks.settle();
  EXPECT_THAT(ranks[1].failures().at(0).text, HasSubstr("rank 2 has left"));
}

// Rank 5 submits x only after it has failed on the others.
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

TEST(Stall, FailsAtTheLimitUnderRandomDelays) {
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    SimulationConfig config = world_of(8, seed);
    config.coordinator.stall_limit = 150ms;
    Simulation world(config, programs_with_a_late_rank());
    world.run();
    ASSERT_EQ(world.stuck(), "");
    EXPECT_THAT(world.engine(7).failures().at(0).text, HasSubstr("but not by rank 5 within 150 ms"));
    EXPECT_EQ(world.engine(5).times("x"), 1);
  }
}

// Odd ranks wait for x, even ones for y, and rank 63 for nothing.
TEST(Stall, TheErrorOfSixtyFourRanksNamesWhatEachSideWaitsFor) {
  std::vector<Program> programs(64);
  for (int rank = 0; rank < 63; ++rank) {
    Program& program = programs[static_cast<std::size_t>(rank)];
    program.emplace_back(SubmitCall{gradient(rank % 2 == 1 ? "x" : "y")});
    program.emplace_back(WaitCall{});
  }
  SimulationConfig config = world_of(64);
  config.coordinator.stall_limit = 60s;
  config.coordinator.stall_warning = 40s;
  Simulation world(config, programs);
  for (int rank = 0; rank < 64; ++rank)
    world.engine(rank).set_call_sites(rank % 2 == 1 ? "odd.py:1 main" : "even.py:2 main");
  world.run();
  ASSERT_EQ(world.stuck(), "");
  EXPECT_EQ(world.engine(0).warnings().size(), 2U) << "the warning, and the end of x, which it has not submitted";
  const std::string& text = world.engine(1).failures().at(0).text;
  EXPECT_THAT(text, AllOf(HasSubstr("tensor 'x': submitted by ranks 1, 3, 5,"), HasSubstr("within 60000 ms"),
                          HasSubstr("wait for 'y' (not submitted by ranks 1, 3,"),
                          HasSubstr("Rank 63 waits for no other tensor."), HasSubstr("odd.py:1 main"),
                          HasSubstr("even.py:2 main"), HasSubstr("\nrank 63, which did not, is here:\n  odd.py:1")));
  EXPECT_LT(text.size(), 4'096U);
  EXPECT_EQ(world.engine(62).failures().at(0).name, "y");
}

}  // namespace
}  // namespace horo
