// Units: all tensors of a unit are released together, or all fail.
#include "tests/controller/ranks.h"

namespace horo {
namespace {

std::vector<TensorSpec> unit(const std::string& name, const std::vector<std::string>& tensors) {
  std::vector<TensorSpec> specs;
  for (const std::string& tensor : tensors) {
    specs.push_back(gradient(tensor));
    specs.back().unit = name;
    specs.back().unit_size = static_cast<int>(tensors.size());
  }
  return specs;
}

TEST(Unit, IsReleasedWhenItsLastTensorIsReadyOnAllRanks) {
  Ranks ranks(2);
  const std::vector<TensorSpec> specs = unit("u", {"a", "b", "c"});
  ranks.submit_on({0}, specs);
  ranks.submit_on({1}, {specs[0], specs[2]});
  EXPECT_TRUE(ranks[0].stream().empty());
  ranks.submit_on({1}, {specs[1]});
  ASSERT_EQ(ranks[1].stream().size(), 1U);
  EXPECT_THAT(ranks[1].stream()[0].names, ElementsAre("a", "c", "b"));
}

TEST(Unit, AUnitOfDifferentTypesIsReleasedInOneTurn) {
  Ranks ranks(2);
  std::vector<TensorSpec> specs = unit("u", {"a", "b", "c"});
  specs[1].dtype = DType::kFloat64;
  specs[2].kind = CollectiveKind::kAllGather;
  ranks.submit_on({0}, specs);
  ranks.submit_on({1}, {specs[0], specs[1]});
  EXPECT_TRUE(ranks[0].stream().empty());
  ranks.submit_on({1}, {specs[2]});
  EXPECT_EQ(ranks[0].stream().size(), 3U);
  EXPECT_EQ(ranks[1].stream(), ranks[0].stream());
}

TEST(Unit, AMismatchOfOneTensorFailsAllAndNamesIt) {
  Ranks ranks(3);
  std::vector<TensorSpec> specs = unit("u", {"a", "b"});
  ranks.submit_on({0, 2}, specs);
  specs[0].shape = {7};
  ranks.submit_on({1}, specs);
  for (int rank = 0; rank < 3; ++rank) {
    ASSERT_EQ(ranks[rank].failures().size(), 2U);
    EXPECT_THAT(ranks[rank].failures()[0].text, StartsWith("all_reduce of tensor 'a': ranks disagree: shape [256] on"));
    EXPECT_THAT(
        ranks[rank].failures()[1].text,
        AllOf(StartsWith("tensor 'b' is one unit ('u') with tensor 'a', which failed: all_reduce of tensor 'a'"),
              HasSubstr("shape [7] on rank 1")));
    EXPECT_TRUE(ranks[rank].idle() && ranks[rank].stream().empty());
  }
  ranks.submit(unit("u", {"a", "b"}));
  EXPECT_EQ(ranks[1].times("a") + ranks[1].times("b"), 2);
}

TEST(Unit, AStallOfOneTensorFailsAllAndTheNextInstanceRuns) {
  CoordinatorConfig config;
  config.stall_limit = 400ms;
  Ranks ranks(2, config);
  ranks.submit_on({0}, unit("u", {"a", "b"}));
  ranks.submit_on({1}, unit("u", {"a", "c"}));
  ranks.fire_timers_until(ranks.now + 1s);
  for (int rank = 0; rank < 2; ++rank) {
    EXPECT_EQ(ranks[rank].failures().size(), 2U);
    EXPECT_TRUE(ranks[rank].idle()) << ranks[rank].in_flight();
  }
  EXPECT_EQ(ranks[0].failures()[0].name, "b");
  EXPECT_THAT(ranks[0].failures()[0].text, HasSubstr("submitted by rank 0, but not by rank 1"));
  EXPECT_THAT(ranks[0].failures()[1].text, HasSubstr("tensor 'a' is one unit ('u') with tensor 'b', which failed"));
  ranks.submit(unit("u", {"a", "b"}));
  EXPECT_EQ(ranks[1].times("b"), 1);
}

TEST(Unit, AnUnnamedUnitFailsOnARankThatSubmitsItTooLate) {
  CoordinatorConfig config;
  config.stall_limit = 400ms;
  Ranks ranks(2, config);
  std::vector<TensorSpec> specs = unit("unit#0", {"unit#0_1of2", "unit#0_2of2"});
  for (TensorSpec& spec : specs) spec.once = true;
  ranks.submit_on({0}, specs);
  ranks.fire_timers_until(ranks.now + 1s);
  EXPECT_EQ(ranks[0].failures().size(), 2U);
  ranks.submit_on({1}, specs);
  EXPECT_EQ(ranks[1].failures().size(), 2U);
  EXPECT_TRUE(ranks[1].idle());
}

TEST(Unit, FailsWhenARankItNeedsLeaves) {
  Ranks ranks(3);
  const std::vector<TensorSpec> specs = unit("u", {"a", "b"});
  ranks.submit_on({0, 1}, specs);
  ranks[2].submit(specs[0]);
  ranks.settle();
  ranks[0].post(RankLeft{2});
  ranks.settle();
  for (const int rank : {0, 1}) {
    ASSERT_EQ(ranks[rank].failures().size(), 2U);
    EXPECT_THAT(ranks[rank].failures()[0].text, StartsWith("tensor 'b': rank 2 has left"));
    EXPECT_TRUE(ranks[rank].idle());
  }
}

TEST(Unit, RanksThatMakeDifferentUnitsFailWithAMismatch) {
  Ranks ranks(2);
  ranks.submit_on({0}, unit("u", {"a", "b"}));
  ranks.submit_on({1}, unit("v", {"a", "b"}));
  for (int rank = 0; rank < 2; ++rank) {
    EXPECT_THAT(ranks[rank].failures().at(0).text, HasSubstr("unit 'u' on rank 0; unit 'v' on rank 1"));
    EXPECT_EQ(ranks[rank].failures().size(), 2U);
    EXPECT_TRUE(ranks[rank].idle());
  }
}

TEST(Unit, IsAPlanIfItIsOneBucket) {
  Ranks ranks(2);
  const std::vector<TensorSpec> specs = unit("u", {"a", "b"});
  for (int step = 0; step < 4; ++step) ranks.step({specs[0], gradient("x"), specs[1]});
  const auto& stream = ranks[1].stream();
  ASSERT_GE(stream.size(), 2U);
  EXPECT_TRUE((stream.end() - 1)->known && (stream.end() - 2)->known);
  EXPECT_THAT((stream.end() - 1)->names, ElementsAre("a", "b"));
}

TEST(Unit, AUnitOfSeveralBucketsIsInNoPlan) {
  Ranks ranks(2);
  std::vector<TensorSpec> specs = unit("u", {"a", "b"});
  specs[1].dtype = DType::kFloat16;
  for (int step = 0; step < 4; ++step) ranks.step(specs);
  for (const Seen& seen : ranks[1].stream()) EXPECT_FALSE(seen.known);
  EXPECT_EQ(ranks[1].times("b"), 4);
}

TEST(Unit, ContinuesWithoutTheJoinedRanks) {
  Ranks ranks(3);
  const std::vector<TensorSpec> specs = unit("u", {"a", "b"});
  ranks.submit_on({0, 1}, specs);
  ranks[2].join();
  ranks.settle();
  EXPECT_THAT(ranks[0].stream().at(0).ranks, ElementsAre(0, 1));
  EXPECT_THAT(ranks[0].stream().at(0).names, ElementsAre("a", "b"));
}

TEST(Unit, FailsAsAWholeIfOneTensorIsNotPossibleAfterAJoin) {
  Ranks ranks(2);
  std::vector<TensorSpec> specs = unit("u", {"a", "b"});
  specs[1].kind = CollectiveKind::kAllGather;
  ranks[1].join();
  ranks.submit_on({0}, specs);
  EXPECT_EQ(ranks[0].failures().size(), 2U);
  EXPECT_TRUE(ranks[0].idle());
}

TEST(Unit, ThatNeverBecomesCompleteFailsAtTheLimit) {
  CoordinatorConfig config;
  config.stall_limit = 400ms;
  config.stall_warning = 100ms;
  Ranks ranks(2, config);
  ranks.submit({unit("u", {"a", "b"})[0]});
  ranks.fire_timers_until(ranks.now + 1s);
  for (int rank = 0; rank < 2; ++rank) {
    EXPECT_TRUE(ranks[rank].idle());
    EXPECT_EQ(ranks[rank].failures().at(0).text,
              "tensor 'a' is of unit 'u', which failed: not all of its tensors were submitted within 400 ms "
              "(HORO_STALL_LIMIT_MS). Nothing was changed; make a unit of the same tensors on all ranks");
  }
}

TEST(Unit, AUnitOfDifferentTensorsFailsWhenAllHaveJoined) {
  Ranks ranks(2);
  ranks.submit_on({0}, unit("u", {"a", "b"}));
  ranks.submit_on({1}, unit("u", {"a", "c"}));
  for (int rank = 0; rank < 2; ++rank) ranks[rank].join();
  ranks.settle();
  for (int rank = 0; rank < 2; ++rank) {
    EXPECT_TRUE(ranks[rank].idle()) << ranks[rank].in_flight();
    EXPECT_EQ(ranks[rank].times("a"), 1);
    EXPECT_EQ(ranks[rank].joins().size(), 1U);
  }
  EXPECT_THAT(ranks[0].failures().at(0).text,
              StartsWith("tensor 'b' is of unit 'u', which failed: all ranks have joined"));
}

TEST(Unit, WhatIsLeftOfOneInTheNextEpochRunsAloneAndTheNextInstanceAsAUnit) {
  Ranks ranks(2);
  const std::vector<TensorSpec> specs = unit("u", {"a", "b"});
  for (const int rank : {0, 1}) ranks[rank].submit(specs[1], false, true);
  ranks.settle();
  EXPECT_EQ(ranks[1].times("b"), 1);
  ranks.submit({specs[1]});
  EXPECT_EQ(ranks[1].times("b"), 1);
  ranks.submit({specs[0]});
  EXPECT_EQ(ranks[1].times("a") + ranks[1].times("b"), 3);
}

TEST(Unit, UnitsOfTheSameNameInTwoSetsAreIndependent) {
  Ranks ranks(2);
  ranks.add_set({0});
  std::vector<TensorSpec> specs = unit("u", {"a", "b"});
  ranks.submit_on({0}, {specs[0]});
  for (TensorSpec& spec : specs) spec.set = 1;
  ranks.submit_on({0}, {specs[0]});
  EXPECT_TRUE(ranks[0].stream().empty());
  ranks.submit_on({0}, {specs[1]});
  ASSERT_EQ(ranks[0].stream().size(), 1U);
  EXPECT_EQ(ranks[0].stream()[0].set, 1U);
}

}  // namespace
}  // namespace horo
