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

CoordinatorConfig with_stall_limit(std::chrono::seconds warning, std::chrono::seconds limit) {
  CoordinatorConfig config;
  config.stall_warning = warning;
  config.stall_limit = limit;
  return config;
}

TEST(StallClock, ReturnsTheEarliestTimerFirst) {
  StallClock clock(with_stall_limit(std::chrono::seconds(2), std::chrono::seconds(8)));
  const TimePoint start = TimePoint{} + std::chrono::hours(1);
  const StallPatience warned = StallPatience{start}.after(Stage::kWarn);
  const StallTimer first = clock.add({start}, PlanId{7});
  clock.add(warned, PlanId{8});
  clock.add(warned.after(Stage::kDiagnose), PlanId{9});
  EXPECT_EQ(clock.earliest(), start + std::chrono::seconds(2));
  EXPECT_FALSE(clock.due(start + std::chrono::seconds(1)).has_value());
  EXPECT_EQ(std::get<PlanId>(*clock.due(start + std::chrono::seconds(2))), 7U);
  clock.remove(first);
  EXPECT_EQ(clock.earliest(), start + std::chrono::seconds(7)) << "an answer timeout before the limit";
}

TEST(StallClock, DoesNotWarnIfTheRequestForDiagnosisIsDueFirst) {
  const StallClock clock(with_stall_limit(std::chrono::seconds(7), std::chrono::seconds(8)));
  EXPECT_TRUE(clock.is_next({TimePoint{}}, Stage::kDiagnose));
}

TEST(StallClock, WithoutALimitATimerIsNeverDueAfterItsOtherStages) {
  StallClock clock(with_stall_limit(std::chrono::seconds(2), std::chrono::seconds(0)));
  const StallPatience warned = StallPatience{TimePoint{}}.after(Stage::kWarn);
  EXPECT_TRUE(clock.is_next(warned, Stage::kCheck));
  clock.add(warned.after(Stage::kCheck), PlanId{7});
  EXPECT_FALSE(clock.earliest().has_value());
  EXPECT_EQ(clock.all().size(), 1U);
}

}  // namespace
}  // namespace horo
