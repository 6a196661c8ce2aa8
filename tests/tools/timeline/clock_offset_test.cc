// Two clocks of known offset and speed, and collectives whose messages take a random time.
#include "tools/horo/timeline/clock_offset.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>

namespace horo::tools {
namespace {

constexpr double kSecond = 1e6;

struct Clocks {
  double offset = 0, drift = 0;  // of the other clock, to the first one, at its time 0
  double step = 0;               // by which the other clock is set in the middle of the run
  double run = 0;                // seconds
  double wait = 0;               // for which the other clock's rank waits for that of the first one, at most; seconds

  double other(double time) const { return time + offset + drift * time + (time > run * kSecond / 2 ? step : 0); }
};

ClockOffset after_run(const Clocks& clocks, unsigned seed) {
  std::mt19937 random(seed);
  std::exponential_distribution<double> late(1.0 / 300);  // microseconds
  ClockOffset offset;
  for (int i = 0; i < 1'000; ++i) {
    const double begin = clocks.run * kSecond * i / 1'000;
    const double waits = clocks.wait > 0 ? clocks.wait * kSecond * static_cast<double>(random() % 100) / 100 : 0;
    const double ready = begin + waits + late(random), other_ready = begin + late(random);
    const double released = std::max(ready, other_ready) + 50;
    CollectiveTimes first, other;
    first.add(ready, released + late(random));
    other.add(clocks.other(other_ready), clocks.other(released + late(random)));
    offset.add(first, other);
  }
  return offset;
}

double worst_error(const Clocks& clocks, const ClockOffset::Found& found) {
  double worst = 0;
  for (double time = 0; time <= clocks.run * kSecond; time += clocks.run * kSecond / 100) {
    const double other = clocks.other(time);
    worst = std::max(worst, std::abs(found.offset_at(other) - (other - time)));
  }
  return worst;
}

TEST(ClockOffset, OneOffsetFitsAShortRun) {
  for (unsigned seed = 0; seed < 20; ++seed) {
    const Clocks clocks{-100 * kSecond, 0, 0, 10};
    const auto found = after_run(clocks, seed).found();
    ASSERT_TRUE(found);
    EXPECT_EQ(found->drift, 0);
    EXPECT_LE(worst_error(clocks, *found), found->bound);
    EXPECT_LT(found->bound, 100);
  }
}

// A drift that is too small to be seen moves the offset within the bound.
TEST(ClockOffset, TheBoundOfOneOffsetHoldsWhereClocksDrift) {
  for (unsigned seed = 0; seed < 20; ++seed) {
    const Clocks clocks{100 * kSecond, 20e-6, 0, 3};
    const auto found = after_run(clocks, seed).found();
    ASSERT_TRUE(found);
    EXPECT_EQ(found->drift, 0);
    EXPECT_LE(worst_error(clocks, *found), found->bound);
  }
}

TEST(ClockOffset, LongWaitsForARankDoNotBendTheLine) {
  for (unsigned seed = 0; seed < 20; ++seed) {
    const Clocks clocks{100 * kSecond, -180e-6, 0, 3'600, 3};
    const auto found = after_run(clocks, seed).found();
    ASSERT_TRUE(found);
    EXPECT_LE(worst_error(clocks, *found), found->bound);
  }
}

TEST(ClockOffset, ALineFitsALongRunOfClocksWithDifferentSpeeds) {
  for (unsigned seed = 0; seed < 20; ++seed) {
    const Clocks clocks{100 * kSecond, (seed % 2 == 0 ? 20e-6 : -180e-6), 0, 3'600};
    const auto found = after_run(clocks, seed).found();
    ASSERT_TRUE(found);
    EXPECT_NEAR(found->drift, clocks.drift, 1e-7);
    EXPECT_LE(worst_error(clocks, *found), found->bound);
    EXPECT_LT(found->bound, 200);
  }
}

TEST(ClockOffset, NothingFitsAClockThatWasSet) {
  EXPECT_FALSE(after_run({5, 0, kSecond, 100}, 1).found());
  EXPECT_FALSE(ClockOffset().found());
}

}  // namespace
}  // namespace horo::tools
