// The contract of coordinator.h, with a few ranks whose messages arrive without delay.
#include "controller/coordinator.h"

#include <algorithm>

#include "controller/messages.h"
#include "horo/base/error.h"
#include "tests/controller/ranks.h"

namespace horo {
namespace {

TEST(Coordinator, ATensorIsReleasedWhenTheLastRankReportsIt) {
  Ranks ranks(3);
  ranks[0].submit(gradient("x"));
  ranks[2].submit(gradient("x"));
  ranks.settle();
  EXPECT_TRUE(ranks[0].stream().empty());
  ranks[1].submit(gradient("x"));
  ranks.settle();
  for (int rank = 0; rank < 3; ++rank) {
    ASSERT_EQ(ranks[rank].stream().size(), 1U);
    EXPECT_EQ(ranks[rank].stream()[0], ranks[0].stream()[0]);
    EXPECT_EQ(ranks[rank].stream()[0].number, 1U);
  }
}

TEST(Coordinator, TensorsThatAreReadyTogetherAreOneBucket) {
  Ranks ranks(2);
  ranks.submit({gradient("a"), gradient("b"), gradient("c")});
  ASSERT_EQ(ranks[1].stream().size(), 1U);
  EXPECT_THAT(ranks[1].stream()[0].names, ElementsAre("a", "b", "c"));
}

TEST(Coordinator, TheSameNameInAnotherChannelIsAnotherTensor) {
  Ranks ranks(2);
  TensorSpec other = gradient("x", {9});
  other.channel = 1;
  ranks[0].submit(gradient("x"));
  ranks[1].submit(other);
  ranks.settle();
  EXPECT_TRUE(ranks[0].stream().empty() && ranks[0].failures().empty());
}

TEST(Coordinator, TheSecondReportOfATensorIsOneBit) {
  Ranks ranks(2);
  ranks.submit({gradient("x")});
  ranks.sent.clear();
  ranks.submit({gradient("x")});
  ASSERT_EQ(ranks.sent.size(), 2U);
  for (const Send& send : ranks.sent) EXPECT_TRUE(send.has_bits && !send.has_names);
  EXPECT_EQ(ranks[1].times("x"), 2);
}

TEST(Coordinator, StepsBecomeKnownPlans) {
  Ranks ranks(2);
  learn_plans(ranks, {gradient("a"), gradient("b")});
  ranks.sent.clear();
  ranks.submit({gradient("b"), gradient("a")});
  EXPECT_TRUE(ranks[1].stream().back().known);
  EXPECT_THAT(ranks[1].stream().back().names, ElementsAre("a", "b"));
  EXPECT_EQ(ranks.sent.size(), 2U);
}

// As with two optimizers that take turns: rank 0 receives rank 1's step end together with the next tensors of both.
TEST(Coordinator, TensorsReportedTogetherWithAStepEndAreInAPlanOfTheirOwn) {
  Ranks ranks(2);
  const std::vector<TensorSpec> one = {gradient("a"), gradient("b")}, other = {gradient("c"), gradient("d")};
  for (int i = 0; i < 3; ++i) {
    ranks.submit(one);
    for (const int rank : {1, 0}) {
      ranks[rank].step_end();
      for (const TensorSpec& spec : other) ranks[rank].submit(spec);
      if (rank == 1) ranks.deliver(1, ranks.turn(1));
    }
    ranks.settle();
    for (const int rank : {1, 0}) ranks[rank].step_end();
    ranks.settle();
  }
  ranks.submit(one);
  EXPECT_TRUE(ranks[1].stream().back().known);
  EXPECT_THAT(ranks[1].stream().back().names, ElementsAre("a", "b"));
}

TEST(Coordinator, AReportOfAWholePlanCountsForEachTensorUntilEveryRankUsesThePlan) {
  Ranks ranks(2);
  const std::vector<TensorSpec> specs = {gradient("a"), gradient("b")};
  ranks.submit(specs);
  ranks[0].step_end();
  ranks.settle();
  ranks[1].step_end();  // has applied the plan, and uses it one step before rank 0
  ranks.settle();
  ranks.submit({specs[1], specs[0]});
  EXPECT_EQ(ranks[1].times("a") + ranks[1].times("b"), 4);
  EXPECT_FALSE(ranks[1].stream().back().known);
}

TEST(Coordinator, ATensorThatIsNotStepwiseOnOneRankIsInNoPlan) {
  Ranks ranks(2);
  for (int step = 0; step < 4; ++step) {
    for (int rank = 0; rank < 2; ++rank) {
      TensorSpec spec = gradient("x");
      spec.stepwise = rank == 0;
      ranks[rank].submit(spec);
    }
    ranks.settle();
    for (int rank = 0; rank < 2; ++rank) ranks[rank].step_end();
    ranks.settle();
  }
  EXPECT_EQ(ranks[1].times("x"), 4);
  EXPECT_FALSE(ranks[1].stream().back().known);
}

TEST(Coordinator, ATensorThatIsNotStepwiseIsInNoPlan) {
  Ranks ranks(2);
  TensorSpec spec = gradient("x");
  spec.stepwise = false;
  learn_plans(ranks, {spec});
  ranks.step({spec});
  EXPECT_FALSE(ranks[1].stream().back().known);
}

TEST(Coordinator, ATensorThatIsAbsentOnSomeRanksIsABucketThatNamesThem) {
  Ranks ranks(3);
  for (int rank = 0; rank < 3; ++rank) {
    ranks[rank].submit(gradient("a"));
    ranks[rank].submit(gradient("b"), rank != 1);
  }
  ranks.settle();
  ASSERT_EQ(ranks[1].stream().size(), 2U);
  EXPECT_THAT(ranks[1].stream()[1].names, ElementsAre("b"));
  EXPECT_THAT(ranks[1].stream()[1].absent_ranks, ElementsAre(0, 2));
}

TEST(Coordinator, ATensorThatIsAbsentOnAllRanksIsSkippedAndNeedsNoName) {
  Ranks ranks(2);
  for (int step = 0; step < 2; ++step) {
    ranks.sent.clear();
    for (int rank = 0; rank < 2; ++rank) ranks[rank].submit(gradient("x"), true);
    ranks.settle();
    EXPECT_TRUE(ranks[1].stream().back().skipped);
  }
  for (const Send& send : ranks.sent) EXPECT_FALSE(send.has_names);
}

TEST(Coordinator, AbsentTensorsOfAPlanAreSeparateBucketsAfterTheOthers) {
  Ranks ranks(2);
  learn_plans(ranks, {gradient("a"), gradient("b"), gradient("c"), gradient("d")});
  const std::size_t before = ranks[0].stream().size();
  for (int rank = 0; rank < 2; ++rank) {
    ranks[rank].submit(gradient("d"));
    ranks[rank].submit(gradient("a"), rank == 1);
    ranks[rank].submit(gradient("c"));
    ranks[rank].submit(gradient("b"), true);
  }
  ranks.settle();
  EXPECT_EQ(ranks[0].stream(), ranks[1].stream());
  ASSERT_EQ(ranks[0].stream().size(), before + 3);
  EXPECT_THAT(ranks[0].stream()[before].names, ElementsAre("c", "d"));
  EXPECT_FALSE(ranks[0].stream()[before].known);
  EXPECT_THAT(ranks[0].stream()[before + 1].absent_ranks, ElementsAre(1));
  EXPECT_TRUE(ranks[0].stream()[before + 2].skipped);
  ranks.submit({gradient("a"), gradient("b"), gradient("c"), gradient("d")});
  EXPECT_TRUE(ranks[1].stream().back().known) << "the plan goes on";
}

TEST(Coordinator, ANewShapeGetsANewNumberAndTheOldShapeKeepsItsNumber) {
  Ranks ranks(2);
  for (const std::int64_t rows : {1, 2, 1, 2}) ranks.submit({gradient("x", {rows})});
  EXPECT_EQ(ranks[1].times("x"), 4);
  ranks.sent.clear();
  ranks.submit({gradient("x", {1})});
  for (const Send& send : ranks.sent) EXPECT_FALSE(send.has_names);
}

TEST(Coordinator, ANewShapeOfATensorInAPlanDissolvesThePlan) {
  Ranks ranks(2);
  learn_plans(ranks, {gradient("a"), gradient("b")});
  ranks.submit({gradient("a", {3}), gradient("b")});
  EXPECT_EQ(ranks[1].times("a"), 4);
  EXPECT_EQ(ranks[1].times("b"), 4);
  EXPECT_TRUE(ranks[0].failures().empty());
}

TEST(Coordinator, AnUnnamedTensorIsForgottenAfterItsRelease) {
  Ranks ranks(2);
  for (int i = 0; i < 3; ++i) {
    TensorSpec spec = gradient("all_reduce#" + std::to_string(i));
    spec.once = true;
    ranks.submit({spec});
    EXPECT_EQ(ranks[1].times(spec.name), 1);
  }
  EXPECT_TRUE(ranks[0].coordinator().ready_times().empty());
  EXPECT_TRUE(ranks[1].coordinator().ready_times().empty());
}

TEST(Coordinator, BeyondMaxTensorsEveryReportCarriesTheName) {
  CoordinatorConfig config;
  config.max_tensors = 1;
  Ranks ranks(2, config);
  for (int i = 0; i < 5; ++i) ranks.step({gradient("x"), gradient("y")});
  EXPECT_EQ(ranks[1].times("y"), 5);
  EXPECT_TRUE(ranks.sent.back().has_bits || ranks.sent.back().has_names);
  EXPECT_TRUE(std::any_of(ranks.sent.end() - 4, ranks.sent.end(), [](const Send& send) { return send.has_names; }));
}

TEST(Coordinator, NoPlansAreDefinedBeyondMaxPlans) {
  CoordinatorConfig config;
  config.max_plans = 1;
  config.bucket_bytes = 0;
  Ranks ranks(2, config);
  learn_plans(ranks, {gradient("a"), gradient("b")});
  ranks.submit({gradient("a"), gradient("b")});
  const auto known = [](const Seen& seen) { return seen.known; };
  EXPECT_EQ(std::count_if(ranks[0].stream().begin(), ranks[0].stream().end(), known), 2);
  EXPECT_EQ(ranks[1].times("b"), 4);
}

TEST(Coordinator, TheFirstDimensionOfAnAllGatherMayDiffer) {
  Ranks ranks(2);
  for (int rank = 0; rank < 2; ++rank) {
    TensorSpec spec = gradient("x", {rank + 1, 3});
    spec.kind = CollectiveKind::kAllGather;
    ranks[rank].submit(spec);
  }
  ranks.settle();
  EXPECT_EQ(ranks[0].times("x"), 1);
}

TEST(Coordinator, RowsOfAnAllGatherMayChangeAndChangeBack) {
  Ranks ranks(2);
  for (const std::int64_t rows : {1, 2, 1, 2}) {
    TensorSpec spec = gradient("x", {rows, 3});
    spec.kind = CollectiveKind::kAllGather;
    ranks.submit({spec});
  }
  EXPECT_EQ(ranks[1].times("x"), 4);
  EXPECT_FALSE(ranks.sent.back().has_names);
}

TEST(Coordinator, TheLeaderHasReadyTimesOfAllRanksAndAMemberItsOwn) {
  Ranks ranks(2);
  const TimePoint start = ranks.now;
  ranks[1].submit(gradient("x"));
  ranks.settle();
  ranks.now += std::chrono::seconds(3);
  ranks[0].submit(gradient("x"));
  ranks.settle();
  const auto leader = ranks[0].coordinator().ready_times();
  ASSERT_EQ(leader.size(), 1U);
  EXPECT_EQ(leader[0].name, "x");
  EXPECT_THAT(leader[0].since, ElementsAre(start + std::chrono::seconds(3), start));
  const auto member = ranks[1].coordinator().ready_times();
  EXPECT_THAT(member.at(0).since, ElementsAre(TimePoint::min(), start));
}

// The releases among the actions of a coordinator.
std::vector<Release> releases_of(const Actions& actions) {
  std::vector<Release> found;
  for (const Action& action : actions) {
    if (const auto* release = std::get_if<Release>(&action)) found.push_back(*release);
  }
  return found;
}

// Rank 1 has submitted the tensor 2 ms before its engine tells, rank 0 has it 30 ms earlier; the releases on rank 1.
std::vector<Release> release_on_rank_1(bool has_one_clock, TimePoint start, Duration way = {}) {
  using std::chrono::milliseconds;
  CoordinatorConfig config;
  config.size = 2;
  config.has_one_clock = has_one_clock;
  Coordinator leader(config);
  leader.set_way(1, way);
  config.rank = 1;
  Coordinator member(config);
  Actions actions, from_member, on_member;
  leader.declare(0, gradient("x"));
  member.declare(0, gradient("x"));
  leader.on(Submitted{.key = 0, .at = start}, start + milliseconds(1), actions);
  leader.flush(start + milliseconds(1), actions);
  member.on(Submitted{.key = 0, .at = start + milliseconds(30)}, start + milliseconds(32), from_member);
  member.flush(start + milliseconds(32), from_member);
  leader.on(Received{1, std::get<Send>(from_member.at(0)).bytes}, start + milliseconds(33), actions);
  leader.flush(start + milliseconds(33), actions);
  EXPECT_EQ(releases_of(actions).at(0).last, 1);
  for (const Action& action : actions) {
    if (const auto* send = std::get_if<Send>(&action)) {
      member.on(Received{0, send->bytes}, start + milliseconds(34), on_member);
    }
  }
  return releases_of(on_member);
}

TEST(Coordinator, AReleaseNamesTheRankThatWasReadyLastAndHowLongBefore) {
  const TimePoint start = TimePoint{} + std::chrono::seconds(5);
  const Release on_one_clock = release_on_rank_1(true, start).at(0);
  EXPECT_EQ(on_one_clock.last, 1);
  EXPECT_EQ(on_one_clock.hold, std::chrono::milliseconds(2));
  EXPECT_EQ(on_one_clock.ready, start + std::chrono::milliseconds(31));
  const Release on_two_clocks = release_on_rank_1(false, start).at(0);
  EXPECT_EQ(on_two_clocks.last, 1);
  EXPECT_EQ(on_two_clocks.hold, std::chrono::milliseconds(2));
  EXPECT_EQ(on_two_clocks.ready, TimePoint::min());
  const Release far_away = release_on_rank_1(false, start, std::chrono::milliseconds(1)).at(0);
  EXPECT_EQ(far_away.hold, std::chrono::milliseconds(3)) << "its report was under way for 1 ms";
}

TEST(Coordinator, FiguresTravelWithTheNextReportAndCauseNone) {
  Ranks ranks(2);
  ranks.sent.clear();
  const std::vector<std::byte> first(3, std::byte{1}), second(3, std::byte{2});
  for (const auto& bytes : {first, second}) ranks[1].post(OwnFigures{bytes, ranks.now});
  ranks.settle();
  EXPECT_THAT(ranks.sent, IsEmpty());
  EXPECT_THAT(ranks[0].figures(), IsEmpty());
  ranks.now += 5ms;
  ranks[0].coordinator().set_way(1, 2ms);
  for (int i = 0; i < 3; ++i) ranks.submit({gradient("x")});
  ASSERT_EQ(ranks[0].figures().size(), 1U) << "once";
  EXPECT_EQ(ranks[0].figures()[0].rank, 1);
  EXPECT_EQ(ranks[0].figures()[0].bytes, second);
  EXPECT_EQ(ranks[0].figures()[0].at, ranks.now - 7ms) << "their age, and the way of the message";
}

TEST(Coordinator, TheReadyTimesOfAPlanAreThoseOfItsCompletion) {
  Ranks ranks(2);
  learn_plans(ranks, {gradient("a"), gradient("b")});
  ranks.now += std::chrono::seconds(9);
  ranks.submit({gradient("a"), gradient("b")});
  for (const ReadyTime& time : ranks[0].coordinator().ready_times()) {
    EXPECT_THAT(time.since, ElementsAre(ranks.now, ranks.now)) << time.name;
  }
}

// The error of a coordinator that receives these bytes from `from`.
std::string refusal(EngineModel& engine, int from, std::vector<std::byte> bytes) {
  Actions actions;
  try {
    engine.coordinator().on(Received{from, std::move(bytes)}, TimePoint{}, actions);
  } catch (const ProtocolError& error) {
    return error.what();
  }
  return "taken";
}

TEST(Coordinator, TheErrorOfASecondReportNamesRankAndTensor) {
  Ranks ranks(2);
  UpMessage message;
  message.requests = {{gradient("x"), false}};
  EXPECT_EQ(refusal(ranks[0], 1, encode(message)), "taken");
  EXPECT_THAT(refusal(ranks[0], 1, encode(message)), HasSubstr("rank 1 reported tensor 'x' twice"));
}

TEST(Coordinator, AReportOfAnUnknownTensorOrPlanIsRefused) {
  Ranks ranks(2);
  UpMessage message;
  message.present = {3};
  EXPECT_THAT(refusal(ranks[0], 1, encode(message)), HasSubstr("rank 1 reported tensor number 3"));
  message.present.clear();
  message.plans = {1};
  EXPECT_THAT(refusal(ranks[0], 1, encode(message)), HasSubstr("rank 1 reported plan 1, which was never defined"));
  message.plans.clear();
  message.applied = 1;
  EXPECT_THAT(refusal(ranks[0], 1, encode(message)), HasSubstr("rank 1 applied 1 messages, between 0 and 0"));
}

TEST(Coordinator, TheErrorOfAReleaseWithoutSubmissionNamesRankAndTensor) {
  Ranks ranks(2);
  DownMessage message;
  message.items.emplace_back(ReleaseTensors{{{TensorName{0, 0, "x"}, 0}}, {}});
  EXPECT_THAT(refusal(ranks[1], 0, encode(message)), HasSubstr("released tensor 'x', which rank 1 has not submitted"));
  message.items.front() = ReleasePlan{1, {}};
  EXPECT_THAT(refusal(ranks[1], 0, encode(message)), HasSubstr("released plan 1, which rank 1 does not have"));
  message.items.front() = DefinePlan{1, {7}};
  EXPECT_THAT(refusal(ranks[1], 0, encode(message)), HasSubstr("put tensor number 7 (unknown) into plan 1"));
}

TEST(Coordinator, MessagesOfOtherRanksAreRefused) {
  Ranks ranks(3);
  EXPECT_THAT(refusal(ranks[1], 2, encode(DownMessage{})), HasSubstr("message from rank 2"));
  EXPECT_THAT(refusal(ranks[0], 3, encode(UpMessage{})), HasSubstr("message from rank 3"));
  EXPECT_THAT(refusal(ranks[0], 0, encode(UpMessage{})), HasSubstr("message from rank 0"));
}

}  // namespace
}  // namespace horo
