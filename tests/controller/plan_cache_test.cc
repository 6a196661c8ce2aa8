#include "controller/plan_cache.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace horo {
namespace {

using std::chrono::seconds;
using testing::ElementsAre;

constexpr TimePoint kNow = TimePoint{} + seconds(5);

TEST(PlanCache, NumbersPlansFromOneAndRefusesNothingBelowItsLimit) {
  PlanCache plans(2, 2);
  EXPECT_EQ(plans.define({0, 1}), 1U);
  EXPECT_FALSE(plans.full());
  EXPECT_EQ(plans.define({2}), 2U);
  EXPECT_TRUE(plans.full());
  EXPECT_EQ(plans.find(0), nullptr);
  EXPECT_EQ(plans.find(3), nullptr);
  EXPECT_THAT(plans.find(1)->tensors, ElementsAre(0, 1));
}

TEST(PlanCache, ADeadPlanIsFoundButNotLive) {
  PlanCache plans(2, 10);
  plans.find(plans.define({0}))->live = false;
  plans.define({1});
  EXPECT_THAT(plans.live(), ElementsAre(2));
  EXPECT_NE(plans.find(1), nullptr);
}

TEST(Plan, SaysWhichSlotsAreAbsentWhere) {
  PlanCache plans(3, 10);
  Plan& plan = *plans.find(plans.define({5, 6, 7}));
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

TEST(StallClock, WhatIsDueFirstComesFirst) {
  StallClock clock;
  EXPECT_FALSE(clock.earliest());
  clock.add(kNow + seconds(2), PlanId{2});
  const auto ticket = clock.add(kNow + seconds(1), PlanId{1});
  clock.add(kNow + seconds(1), PlanId{3});
  EXPECT_EQ(clock.earliest(), kNow + seconds(1));
  EXPECT_FALSE(clock.due(kNow));
  EXPECT_EQ(clock.due(kNow + seconds(3)), Waiting(PlanId{1}));
  clock.remove(ticket);
  EXPECT_EQ(clock.due(kNow + seconds(3)), Waiting(PlanId{3}));
  EXPECT_THAT(clock.all(), ElementsAre(Waiting(PlanId{3}), Waiting(PlanId{2})));
}

}  // namespace
}  // namespace horo
