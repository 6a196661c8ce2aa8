// Priorities: which tensors wait, for how long, and that a waiting tensor stays complete.
#include "controller/messages.h"
#include "tests/controller/ranks.h"

namespace horo {
namespace {

TensorSpec urgent(const std::string& name, std::int32_t priority, std::uint32_t set = 0) {
  TensorSpec spec = in_set(set, name);
  spec.priority = priority;
  return spec;
}

// The credit and the bucket size are one tensor of 1 KiB.
CoordinatorConfig small_credit() {
  CoordinatorConfig config;
  config.credit_bytes = 1024;
  config.bucket_bytes = 1024;
  return config;
}

// Ranks with priorities 9 and 0, whose lanes finish nothing.
Ranks standing(int size, const CoordinatorConfig& config = small_credit(), std::uint32_t set = 0) {
  Ranks ranks(size, config);
  if (set > 0) ranks.add_set({1, 2});
  for (int rank = 0; rank < size; ++rank) {
    if (!ranks[rank].takes(urgent("top", 9, set))) continue;
    ranks[rank].submit(urgent("top", 9, set));
    ranks[rank].submit(urgent("running", 0, set));
  }
  ranks.settle();
  ranks.lanes_stand = true;
  return ranks;
}

std::vector<DownItem> decode_if_down(const Send& send) {
  return send.to == 0 ? std::vector<DownItem>() : decode_down(send.bytes, CoordinatorConfig{.size = 2}).items;
}

std::vector<std::string> order(EngineModel& engine) {
  std::vector<std::string> names;
  for (const Seen& seen : engine.stream()) names.insert(names.end(), seen.names.begin(), seen.names.end());
  return names;
}

TEST(Priority, TensorsOfEqualPriorityDoNotWait) {
  Ranks ranks(2, small_credit());
  ranks.lanes_stand = true;
  ranks.submit({urgent("a", 5), urgent("b", 5), urgent("c", 5)});
  EXPECT_THAT(order(ranks[1]), ElementsAre("a", "b", "c"));
  ranks.finish_on({0, 1}, 3);
  EXPECT_FALSE(ranks[0].has_events());
}

TEST(Priority, AMoreUrgentTensorThatIsReadyLaterIsReleasedFirst) {
  Ranks ranks = standing(2);
  ranks.submit({urgent("running", 0)});
  for (const int priority : {1, 2, 3}) ranks.submit({urgent("p" + std::to_string(priority), priority)});
  EXPECT_THAT(order(ranks[0]), ElementsAre("top", "running", "running"));
  for (int i = 0; i < 3; ++i) ranks.finish_on({0, 1});
  EXPECT_THAT(order(ranks[0]), ElementsAre("top", "running", "running", "p3", "p2", "p1"));
  EXPECT_EQ(ranks[1].stream(), ranks[0].stream());
}

TEST(Priority, AmongEqualPrioritiesTheFirstReadyIsReleasedFirst) {
  Ranks ranks = standing(2);
  ranks.submit({urgent("running", 0)});
  for (const char* name : {"c", "a", "b"}) ranks.submit({urgent(name, 1)});
  for (int i = 0; i < 3; ++i) ranks.finish_on({0, 1});
  EXPECT_THAT(order(ranks[1]), ElementsAre("top", "running", "running", "c", "a", "b"));
}

TEST(Priority, ATensorOfTheGreatestPriorityDoesNotWait) {
  Ranks ranks = standing(2);
  ranks.submit({urgent("running", 0)});
  ranks.submit({urgent("waits", 8)});
  ranks.submit({urgent("top", 9)});
  EXPECT_THAT(order(ranks[0]), ElementsAre("top", "running", "running", "top"));
}

TEST(Priority, NoTensorWaitsWhileLessThanTheCreditIsUnfinished) {
  CoordinatorConfig config = small_credit();
  config.credit_bytes = 2048;
  Ranks ranks = standing(2, config);
  ranks.submit({urgent("running", 0)});
  ranks.submit({urgent("a", 0)});
  ranks.submit({urgent("b", 0)});
  EXPECT_THAT(order(ranks[0]), ElementsAre("top", "running", "running", "a"));
}

TEST(Priority, ATensorLargerThanTheCreditIsReleasedAloneAndACreditOfZeroBlocksNothing) {
  CoordinatorConfig config = small_credit();
  config.credit_bytes = 0;
  Ranks ranks = standing(2, config);
  ranks.submit({urgent("a", 0)});
  ranks.submit({urgent("b", 0)});
  EXPECT_THAT(order(ranks[0]), ElementsAre("top", "running", "a"));
  ranks.finish_on({0, 1});
  EXPECT_THAT(order(ranks[0]), ElementsAre("top", "running", "a", "b"));
}

TEST(Priority, AWaitingTensorIsPassedAtMostMostPassedTimes) {
  CoordinatorConfig config = small_credit();
  config.most_passed = 3;
  Ranks ranks = standing(2, config);
  ranks.submit({urgent("running", 0)});
  ranks.submit({urgent("old", 1)});
  for (int i = 0; i < 5; ++i) {
    ranks.submit({urgent("new" + std::to_string(i), 2)});
    ranks.finish_on({0, 1});
  }
  const std::vector<std::string> all = order(ranks[0]);
  EXPECT_THAT(std::vector(all.begin() + 3, all.end()), ElementsAre("new0", "new1", "new2", "old", "new3"));
}

TEST(Priority, AWaitingTensorIsNoStall) {
  Ranks ranks = standing(2);
  ranks.submit({urgent("running", 0)});
  ranks.submit({urgent("waits", 1)});
  ranks.fire_timers_until(ranks.now + 1h);
  EXPECT_THAT(ranks[0].failures(), IsEmpty());
  EXPECT_THAT(ranks[0].warnings(), IsEmpty());
  ranks.finish_on({0, 1});
  EXPECT_EQ(ranks[1].times("waits"), 1);
}

TEST(Priority, RanksThatDisagreeFailWithAMismatch) {
  Ranks ranks(2, small_credit());
  ranks[0].submit(urgent("a", 3));
  ranks[1].submit(urgent("a", 5));
  ranks.settle();
  for (int rank = 0; rank < 2; ++rank) {
    ASSERT_EQ(ranks[rank].failures().size(), 1U);
    EXPECT_THAT(ranks[rank].failures()[0].text,
                AllOf(HasSubstr("'a'"), HasSubstr("priority 3 on rank 0; priority 5 on rank 1")));
  }
}

TEST(Priority, APriorityOnWhichRanksDisagreeHoldsNothingBack) {
  Ranks ranks(2, small_credit());
  ranks[0].submit(urgent("a", 3));
  ranks[1].submit(urgent("a", 5));
  ranks.settle();
  ranks.lanes_stand = true;
  ranks.submit({urgent("b", 0), urgent("c", 0)});
  EXPECT_THAT(order(ranks[0]), ElementsAre("b", "c"));
}

TEST(Priority, InASetWithoutRankZeroTheFirstMemberReportsDone) {
  Ranks ranks = standing(3, small_credit(), 1);
  ranks.submit_on({1, 2}, {urgent("running", 0, 1)});
  ranks.submit_on({1, 2}, {urgent("p1", 1, 1)});
  ranks.submit_on({1, 2}, {urgent("p2", 2, 1)});
  EXPECT_THAT(order(ranks[1]), ElementsAre("top", "running", "running"));
  ranks.finish_on({2});
  EXPECT_THAT(order(ranks[1]), ElementsAre("top", "running", "running"));
  ranks.finish_on({1});
  EXPECT_THAT(order(ranks[1]), ElementsAre("top", "running", "running", "p2"));
  ranks.finish_on({1, 2});
  EXPECT_THAT(order(ranks[2]), ElementsAre("top", "running", "running", "p2", "p1"));
}

TEST(Priority, PrioritiesOfOneSetHoldNothingBackInAnother) {
  Ranks ranks = standing(3, small_credit(), 1);
  ranks.submit_on({1, 2}, {urgent("running", 0, 1)});
  ranks.submit({gradient("world"), gradient("world too")});
  EXPECT_THAT(order(ranks[0]), ElementsAre("world", "world too"));
}

TEST(Priority, AWaitingTensorRunsBeforeItsSetEnds) {
  Ranks ranks = standing(3, small_credit(), 1);
  ranks.submit_on({1, 2}, {urgent("running", 0, 1)});
  ranks.submit_on({1, 2}, {urgent("waits", 1, 1)});
  ranks.remove_set(1);
  EXPECT_EQ(ranks[1].times("waits"), 1);
  EXPECT_THAT(ranks[1].failures(), IsEmpty());
  for (int rank = 0; rank < 3; ++rank) EXPECT_FALSE(ranks[rank].sets().contains(1));
  ranks.finish_on({1, 2}, 2);  // the set has ended, so these reports are ignored
}

TEST(Priority, AWaitingTensorRunsBeforeTheJoinEnds) {
  Ranks ranks = standing(2);
  ranks.submit({urgent("running", 0)});
  ranks.submit({urgent("waits", 1)});
  for (int rank = 0; rank < 2; ++rank) ranks[rank].join();
  ranks.settle();
  EXPECT_EQ(ranks[0].times("waits"), 1);
  EXPECT_EQ(ranks[1].joins().size(), 1U);
}

TEST(Priority, IfTheFirstRankHasJoinedTheNextOneReportsDone) {
  Ranks ranks = standing(2);
  ranks[0].join();
  ranks.settle();
  ranks.submit_on({1}, {urgent("running", 0)});
  ranks.submit_on({1}, {urgent("waits", 1)});
  EXPECT_THAT(order(ranks[1]), ElementsAre("top", "running", "running"));
  ranks.finish_on({1});
  EXPECT_THAT(order(ranks[1]), ElementsAre("top", "running", "running", "waits"));
}

TEST(Priority, ARankThatLeavesHoldsNothingBack) {
  Ranks ranks = standing(2);
  ranks.submit({urgent("running", 0)});
  ranks.submit({urgent("waits", 1)});
  ranks[0].post(RankLeft{1});
  ranks.settle();
  EXPECT_EQ(ranks[0].times("waits"), 1);
}

TEST(Priority, AUnitIsReleasedAsAWholeWithItsGreatestPriority) {
  Ranks ranks = standing(2);
  ranks.submit({urgent("running", 0)});
  ranks.submit({urgent("middle", 2)});
  std::vector<TensorSpec> unit = {urgent("u1", 1), urgent("u2", 3), urgent("u3", 1)};
  for (TensorSpec& spec : unit) spec.unit = "u", spec.unit_size = 3;
  ranks.submit(unit);
  EXPECT_EQ(ranks[0].stream().size(), 3U);
  ranks.finish_on({0, 1});
  EXPECT_THAT(order(ranks[1]), ElementsAre("top", "running", "running", "u1", "u2", "u3"));
}

TEST(Priority, ATensorThatIsAbsentOnAllRanksDoesNotWait) {
  Ranks ranks = standing(2);
  ranks.submit({urgent("running", 0)});
  for (int rank = 0; rank < 2; ++rank) ranks[rank].submit(urgent("none", 1), true);
  ranks.settle();
  EXPECT_EQ(ranks[0].times("none"), 1);
}

TEST(Priority, APlanHasTheGreatestPriorityOfItsTensors) {
  CoordinatorConfig config = small_credit();
  config.bucket_bytes = 4096;
  config.credit_bytes = 4096;
  Ranks ranks(2, config);
  const std::vector<TensorSpec> specs = {urgent("a", 0), urgent("b", 1), urgent("c", 2), urgent("d", 3)};
  learn_plans(ranks, specs);
  const std::size_t before = ranks[0].stream().size();
  ranks.submit(specs);
  const std::vector<Seen> seen(ranks[0].stream().begin() + static_cast<std::ptrdiff_t>(before),
                               ranks[0].stream().end());
  ASSERT_EQ(seen.size(), 2U);
  EXPECT_TRUE(seen[0].known && seen[1].known);
  EXPECT_THAT(seen[0].names, ElementsAre("c", "d"));
  EXPECT_THAT(seen[1].names, ElementsAre("a", "b"));
  EXPECT_EQ(ranks[1].stream(), ranks[0].stream());
}

TEST(Priority, AKnownPlanWaitsAndRunsAsOneBucket) {
  CoordinatorConfig config = small_credit();
  Ranks ranks(2, config);
  const std::vector<TensorSpec> specs = {urgent("a", 0), urgent("b", 1), urgent("c", 9)};
  learn_plans(ranks, specs);
  const std::size_t before = ranks[0].stream().size();
  ranks.lanes_stand = true;
  for (const TensorSpec& spec : specs) ranks.submit({spec});
  EXPECT_EQ(ranks[0].stream().size(), before + 2);
  ranks.finish_on({0, 1}, 2);
  ASSERT_EQ(ranks[0].stream().size(), before + 3);
  EXPECT_THAT(ranks[0].stream().back().names, ElementsAre("b"));
  EXPECT_TRUE(ranks[0].stream().back().known);
}

TEST(Priority, TheTensorsOfAPlanThatIsDissolvedWhileItWaitsRun) {
  Ranks ranks(3, small_credit());
  const std::vector<TensorSpec> specs = {urgent("a", 0), urgent("b", 1), urgent("c", 9)};
  learn_plans(ranks, specs);
  ranks.lanes_stand = true;
  const int before = ranks[0].times("b");
  ranks.submit({specs[0]});
  ranks.submit({specs[1]});
  ranks[2].join();  // dissolves all plans
  ranks.settle();
  EXPECT_EQ(ranks[0].times("b"), before);
  ranks.finish_on({0, 1, 2});
  for (int rank = 0; rank < 3; ++rank) EXPECT_EQ(ranks[rank].times("b"), before + 1);
}

// Four tensors become ready, the least urgent first. The last is released second, and is last in the plan.
TEST(Priority, PlansAreDefinedInOrderOfReadinessNotOfRelease) {
  CoordinatorConfig config = small_credit();
  config.credit_bytes = 1;
  Ranks ranks = standing(2, config);
  for (int i = 1; i <= 4; ++i) ranks.submit({urgent("t" + std::to_string(i), i)});
  for (int i = 0; i < 4; ++i) ranks.finish_on({0, 1});
  EXPECT_THAT(order(ranks[0]), ElementsAre("top", "running", "t1", "t4", "t3", "t2"));
  ranks.lanes_stand = false;
  ranks.step({urgent("t1", 1)});
  std::vector<std::string> plans;
  for (const Send& send : ranks.sent) {
    for (const DownItem& item : decode_if_down(send)) {
      if (const auto* plan = std::get_if<DefinePlan>(&item)) plans.push_back(std::to_string(plan->tensors.front()));
    }
  }
  // Numbers in order of release: top, running, t1, t4, t3, t2.
  EXPECT_THAT(plans, ElementsAre("0", "1", "2", "5", "4", "3"));
}

}  // namespace
}  // namespace horo
