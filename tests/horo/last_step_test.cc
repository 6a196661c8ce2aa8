// The accounting of steps in sessions whose ranks are threads.
#include <gmock/gmock.h>

#include <array>
#include <future>
#include <numeric>

#include "tests/horo/worlds.h"

namespace horo {
namespace {

using testing::Each;

constexpr std::chrono::milliseconds kLate{20};

std::chrono::nanoseconds bar_of(const StepRecord& step, Bar bar) {
  return step.bars[index_of(bar)];
}

std::chrono::nanoseconds sum_of_bars(const StepRecord& step) {
  return std::accumulate(step.bars.begin(), step.bars.end(), std::chrono::nanoseconds{});
}

void reduce(Session& session) {
  std::array<float, 3> x = {1, 1, 1};
  session.run(float_spec("x", 3), x.data(), x.data());
}

// Four steps, in which rank 1 submits later than the others.
std::vector<StepRecord> steps_with_a_late_rank(Session& session) {
  std::promise<void> never;
  for (int step = 0; step < 5; ++step) {
    if (session.topology().rank == 1) never.get_future().wait_for(kLate);
    never = {};
    reduce(session);
    session.step_end(0);
  }
  return session.steps().last(100);
}

TEST(LastStep, TheOthersHaveSkewForTheRankThatIsLateAndTheBarsAddUp) {
  const auto thrown = run_world(3, [](Session& session) {
    EXPECT_FALSE(session.last_step());
    const std::vector<StepRecord> steps = steps_with_a_late_rank(session);
    ASSERT_EQ(steps.size(), 4U);
    for (std::size_t i = 0; i < steps.size(); ++i) {
      EXPECT_EQ(sum_of_bars(steps[i]), steps[i].end - steps[i].begin);
      if (i > 0) {
        EXPECT_EQ(steps[i].begin, steps[i - 1].end);
      }
    }
    const StepRecord last = *session.last_step();
    if (session.topology().rank == 1) {
      EXPECT_GE(bar_of(last, Bar::kBetween), kLate);
    } else {
      EXPECT_EQ(last.late_ranks[0], 1);
      EXPECT_GE(bar_of(last, Bar::kSkew), kLate / 2);
      EXPECT_EQ(session.steps().skew_by_rank().begin()->first, 1);
    }
  });
  EXPECT_THAT(thrown, Each(""));
}

TEST(LastStep, ARoundOfSeveralOptimizersIsOneStep) {
  const auto thrown = run_world(2, [](Session& session) {
    for (int step = 0; step < 3; ++step) {
      reduce(session);
      session.end_round(0);
      session.end_round(0);
      StepEnd end;
      end.at = Clock::now();
      end.stream = 9;
      session.steps().end(end, {});
    }
    EXPECT_EQ(session.last_step()->number, 2U);
    EXPECT_EQ(session.last_step()->stream, 9U);
  });
  EXPECT_THAT(thrown, Each(""));
}

}  // namespace
}  // namespace horo
