#include "tools/horo/scale/run_watch.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace horo::tools {
namespace {

using testing::HasSubstr;
using Order = RunWatch::Order;

constexpr std::int64_t kSecondNs = 1'000'000'000;

TEST(RunWatch, EndsARunWhenTheWindowBehindTheWarmUpIsFull) {
  RunWatch watch(StepWindow{10 * kSecondNs}, 30 * kSecondNs, 0);
  int steps = 0;
  for (; watch.order(steps * kSecondNs / 2) == Order::kGoOn; ++steps)
    watch.on_step(steps * kSecondNs / 2, kSecondNs / 2);
  EXPECT_EQ(steps, 30) << "10 of the warm-up, and 10 s of half a second";
  EXPECT_EQ(watch.failure(), "");
  EXPECT_EQ(watch.measured_ns(), 10 * kSecondNs);
}

TEST(RunWatch, GivesUpAScriptWithoutSteps) {
  RunWatch watch(StepWindow{10 * kSecondNs}, 30 * kSecondNs, 5);
  EXPECT_EQ(watch.order(30 * kSecondNs), Order::kGoOn);
  EXPECT_EQ(watch.order(30 * kSecondNs + 5), Order::kEnd);
  EXPECT_THAT(watch.failure(), HasSubstr("no steps in 30 s: does the script use DistributedOptimizer"));
  watch.on_step(0, 1);
  EXPECT_EQ(watch.order(31 * kSecondNs), Order::kEnd) << "it stays so";
}

TEST(RunWatch, GivesUpAScriptThatStandsStill) {
  RunWatch watch(StepWindow{10 * kSecondNs}, 30 * kSecondNs, 0);
  watch.on_step(0, kSecondNs);
  EXPECT_EQ(watch.order(kSecondNs), Order::kGoOn);
  EXPECT_EQ(watch.order(60 * kSecondNs), Order::kGoOn);
  EXPECT_EQ(watch.order(61 * kSecondNs), Order::kEnd);
  EXPECT_THAT(watch.failure(), HasSubstr("no new step in 60 s, after 1 of them"));
}

}  // namespace
}  // namespace horo::tools
