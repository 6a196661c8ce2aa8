#include "controller/plan_cache.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace horo {
namespace {

using std::chrono::seconds;
using testing::ElementsAre;

constexpr TimePoint kNow = TimePoint{} + seconds(5);

TEST(PlanCache, NumbersPlansFromOneAndIsFullAtItsLimit) {
  PlanCache plans(2, 2);
  EXPECT_EQ(plans.define(0, {0, 1}), 1U);
  EXPECT_FALSE(plans.full());
  EXPECT_EQ(plans.define(0, {2}), 2U);
  EXPECT_TRUE(plans.full());
  EXPECT_EQ(plans.find(0), nullptr);
  EXPECT_EQ(plans.find(3), nullptr);
  EXPECT_THAT(plans.find(1)->tensors, ElementsAre(0, 1));
}

TEST(PlanCache, ADissolvedPlanIsFoundAndNotLive) {
  PlanCache plans(2, 10);
  plans.find(plans.define(0, {0}))->live = false;
  plans.define(0, {1});
  EXPECT_THAT(plans.live(), ElementsAre(2));
  EXPECT_NE(plans.find(1), nullptr);
}

TEST(Plan, HasTheAbsentSlotsOfEachRank) {
  PlanCache plans(3, 10);
  Plan& plan = *plans.find(plans.define(0, {5, 6, 7}));
  plan.mark(0, {1}, kNow);
  plan.mark(1, {}, kNow);
  plan.mark(2, {0, 1}, kNow);
  EXPECT_TRUE(plan.complete.full());
  const auto exceptions = plan.exceptions();
  ASSERT_EQ(exceptions.size(), 2U);
  EXPECT_EQ(exceptions[0].slot, 0U);
  EXPECT_THAT(exceptions[0].ranks, ElementsAre(2));
  EXPECT_THAT(exceptions[1].ranks, ElementsAre(0, 2));
  EXPECT_TRUE(plan.is_absent(1, 0) && !plan.is_absent(0, 0) && !plan.is_absent(2, 2));
  plan.clear();
  EXPECT_TRUE(plan.exceptions().empty() && plan.complete.empty());
}

TEST(StallClock, ReturnsTheEarliestTimerFirst) {
  CoordinatorConfig config;
  config.stall_limit = std::chrono::seconds(8);
  config.stall_warning = std::chrono::seconds(2);
  StallClock clock(config);
  const TimePoint start = TimePoint{} + std::chrono::hours(1);
  const StallTimer first = clock.add(clock.fresh(start), PlanId{7});
  clock.add({start + std::chrono::seconds(8), Stage::kDiagnose}, PlanId{8});
  clock.add({start + std::chrono::seconds(8), Stage::kFail}, PlanId{9});
  EXPECT_EQ(clock.earliest(), start + std::chrono::seconds(2));
  EXPECT_FALSE(clock.due(start + std::chrono::seconds(1)).has_value());
  EXPECT_EQ(std::get<PlanId>(*clock.due(start + std::chrono::seconds(2))), 7U);
  clock.remove(first);
  EXPECT_EQ(clock.earliest(), start + std::chrono::seconds(7)) << "an answer timeout before the limit";
  EXPECT_EQ(clock.waited({start + std::chrono::seconds(8), Stage::kDiagnose}, start + std::chrono::seconds(3)),
            std::chrono::seconds(3));
}

TEST(StallClock, DoesNotWarnIfTheRequestForDiagnosisIsDueFirst) {
  CoordinatorConfig config;
  config.stall_limit = std::chrono::seconds(8);
  config.stall_warning = std::chrono::seconds(7);
  EXPECT_EQ(StallClock(config).fresh(TimePoint{}).next, Stage::kDiagnose);
}

}  // namespace
}  // namespace horo
