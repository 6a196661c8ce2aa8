#include "horo/base/patience.h"

#include <gtest/gtest.h>

namespace horo {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds kLimit{200}, kTurn{100};

void let_pass(milliseconds time) {
  for (const TimePoint until = Clock::now() + time; Clock::now() < until;) {
  }
}

TEST(Patience, WithoutAnEngineADeadlinePassesByItself) {
  EXPECT_TRUE(has_passed(Clock::now()));
  EXPECT_FALSE(has_passed(Clock::now() + kLimit));
}

// A waiter may run before the thread of the engine does.
TEST(Patience, AfterAPauseADeadlineHasTheWholeTimeAgain) {
  Patience patience(kLimit, kTurn);
  EXPECT_FALSE(patience.look(Clock::now()));
  EXPECT_TRUE(has_passed(Clock::now()));
  let_pass(2 * kTurn);
  const TimePoint deadline = Clock::now();
  EXPECT_FALSE(has_passed(deadline));
  EXPECT_TRUE(patience.look(Clock::now()));
  const TimePoint paused = Clock::now();
  while (!has_passed(deadline)) patience.look(Clock::now());
  EXPECT_GE(Clock::now() - paused, kLimit - milliseconds(1));
}

TEST(Patience, AnEngineWithNothingInFlightMayRest) {
  Patience patience(kLimit, kTurn);
  patience.look(Clock::now());
  patience.rest();
  let_pass(2 * kTurn);
  EXPECT_TRUE(has_passed(Clock::now()));
}

}  // namespace
}  // namespace horo
