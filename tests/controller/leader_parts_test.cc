// The objects of the leader, each alone.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "controller/held_units.h"
#include "controller/leader_tables.h"
#include "controller/step_plans.h"
#include "controller/stream_watermarks.h"
#include "horo/base/error.h"
#include "tests/controller/simulator.h"

namespace horo {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

const TensorName kX{0, 0, "x"};

TEST(StreamWatermarks, AReportBeforeTheFailureIsAppliedCrossesIt) {
  StreamWatermarks progress(2);
  progress.tensor_failed(kX);
  progress.message_sent();
  progress.take(1, 0);
  EXPECT_TRUE(progress.crosses_failure(1, kX));
  EXPECT_FALSE(progress.crosses_failure(1, {0, 0, "y"}));
  progress.take(1, 1);
  EXPECT_FALSE(progress.crosses_failure(1, kX));
}

TEST(StreamWatermarks, ForgetsAFailureThatEveryRankHasAppliedOrLeft) {
  StreamWatermarks progress(3);
  progress.tensor_failed(kX);
  progress.message_sent();
  progress.leader_applied_all();
  progress.take(1, 1);
  RankSet left(3);
  progress.forget_failures(left);
  EXPECT_TRUE(progress.has_failures());
  left.insert(2);
  progress.forget_failures(left);
  EXPECT_FALSE(progress.has_failures());
}

TEST(StreamWatermarks, RefusesACountThatFallsOrExceedsWhatWasSent) {
  StreamWatermarks progress(2);
  progress.message_sent();
  EXPECT_THROW(progress.take(1, 2), ProtocolError);
  progress.take(1, 1);
  EXPECT_THROW(progress.take(1, 0), ProtocolError);
}

TEST(HeldUnits, ReturnsTheEntriesOfAUnitWithItsLast) {
  HeldUnits units;
  ReadyTable table(2, 10);
  TensorSpec spec = gradient("a");
  spec.unit = "u";
  spec.unit_size = 2;
  Entry& a = *table.find_or_add(spec).entry;
  spec.name = "b";
  Entry& b = *table.find_or_add(spec).entry;
  EXPECT_THAT(units.hold(a, spec), IsEmpty());
  EXPECT_TRUE(a.held);
  EXPECT_EQ(units.of_set(0).size(), 1U);
  EXPECT_THAT(units.hold(b, spec), ElementsAre(&a, &b));
  EXPECT_FALSE(a.held || b.held);
  EXPECT_THAT(units.of_set(0), IsEmpty());
}

TEST(LeaderTables, AJoinedRankIsNeitherMissingNorLeftWithout) {
  CoordinatorConfig config;
  config.size = 3;
  LeaderTables tables(config, SetTable(config.size));
  Entry& entry = *tables.tensors.find_or_add(gradient("x")).entry;
  entry.needs.insert(tables.needs(gradient("x")));
  entry.ready.insert(0);
  for (const int rank : {2, 1}) {
    tables.left.insert(rank);
    tables.left_order.push_back(rank);
  }
  EXPECT_THAT(tables.missing(entry), ElementsAre(1, 2));
  EXPECT_THAT(tables.left_without(entry.needs, entry.ready, 0), ElementsAre(2, 1));
  tables.joins.add(0, 1, 1, {});
  EXPECT_THAT(tables.missing(entry), ElementsAre(2));
  EXPECT_THAT(tables.left_without(entry.needs, entry.ready, 0), ElementsAre(2));
}

// Rank 1 of three is lost, and one joins; then rank 0 is lost, and one joins with a lower number than the other.
TEST(LeaderTables, TheRanksThatKnowASetRemoveIt) {
  SetTable first(3);
  first.add("old", {0, 2});
  SetTable second = first.in_next_epoch(3, {0, -1, 1});
  second.add("new", {1, 2});
  const SetTable third = second.in_next_epoch(3, {-1, 0, 2});
  CoordinatorConfig config;
  config.size = 3;
  const auto needs = [&](const SetTable& sets, std::int64_t set) {
    TensorSpec spec;
    spec.kind = CollectiveKind::kRemoveSet;
    spec.shape = {set};
    return LeaderTables(config, sets).needs(spec).ranks();
  };
  EXPECT_THAT(needs(first, 1), ElementsAre(0, 1, 2));
  EXPECT_THAT(needs(second, 1), ElementsAre(0, 1));
  EXPECT_THAT(needs(second, 2), ElementsAre(0, 1, 2));
  EXPECT_THAT(needs(third, 1), ElementsAre(0)) << "it has lost a member, and is gone";
  EXPECT_THAT(needs(third, 2), ElementsAre(0, 2));
  for (const std::int64_t none : {-1, 0, 3, 7}) EXPECT_THAT(needs(third, none), ElementsAre(0, 1, 2)) << none;
  EXPECT_TRUE(third.knows(1, 3));
  EXPECT_FALSE(third.knows(1, 2));
}

// One released instance of a tensor in a world of one rank.
void release(LeaderTables& tables, StepPlans& plans, const std::string& name) {
  const VersionRef ref = tables.tensors.find_or_add(gradient(name));
  ref.entry->needs.insert(0);
  tables.tensors.mark(ref, 0, false, TimePoint{});
  Version& version = ref.entry->versions[ref.version];
  tables.tensors.refer(*ref.entry, version);
  plans.add(*ref.entry, version);
  tables.tensors.finish(*ref.entry);
}

TEST(StepPlans, DefinesOnePlanOfAStepAndKeepsApartTheTensorsOfADissolvedPlan) {
  const CoordinatorConfig config;
  LeaderTables tables(config, SetTable(config.size));
  StepPlans plans(config, tables);
  release(tables, plans, "a");
  EXPECT_THAT(plans.define(), IsEmpty()) << "the step has not ended";
  plans.step_ended(0);
  ASSERT_EQ(plans.define().size(), 1U);
  Entry& entry = *tables.tensors.find({0, 0, "a"});
  EXPECT_EQ(entry.plan, 1U);
  entry.plan = 0;
  plans.keep_apart(entry);
  for (std::uint64_t step = 0; step <= StepPlans::kStepsApart; ++step) {
    release(tables, plans, "a");
    plans.step_ended(0);
    EXPECT_EQ(plans.define().size(), step < StepPlans::kStepsApart ? 0U : 1U) << step;
  }
}

}  // namespace
}  // namespace horo
