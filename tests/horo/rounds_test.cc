// Rounds in sessions: what is refused at the call, what fails on all ranks, and what a round costs.
#include <gmock/gmock.h>

#include <array>
#include <atomic>
#include <future>

#include "horo/base/error.h"
#include "tests/horo/worlds.h"

namespace horo {
namespace {

using testing::AllOf;
using testing::Each;
using testing::HasSubstr;
using testing::StartsWith;

constexpr std::uint64_t kStream = 5;

TensorSpec round_spec(const std::string& name) {
  TensorSpec spec = float_spec(name, 3);
  spec.stepwise = true;
  spec.round_stream = kStream;
  return spec;
}

// The text of the failure, or "".
std::string failure_of(Session& session, const std::string& name) {
  std::array<float, 3> x = {1, 1, 1};
  try {
    session.run(round_spec(name), x.data(), x.data());
    return "";
  } catch (const Mismatch& e) {
    return e.what();
  }
}

TEST(SessionRounds, ATensorOfTwoRoundsFailsOnEveryRankAndTheNextRoundRuns) {
  const auto thrown = run_world(3, [](Session& session) {
    session.begin_round(0, kStream, session.topology().rank == 0 ? 7 : 8, 1);
    EXPECT_THAT(failure_of(session, "w"), StartsWith("tensor 'w': rank 0 submits it in round 1 of step 7, ranks 1, 2"));
    session.begin_round(0, kStream, 9, 1);
    EXPECT_EQ(failure_of(session, "w"), "");
  });
  EXPECT_THAT(thrown, Each(""));
}

TEST(SessionRounds, ARoundThatARankGivesUpFailsOnTheOthersWithoutAnotherCallOfIt) {
  std::promise<void> failed;
  const std::shared_future<void> all_failed = failed.get_future().share();
  std::atomic<int> waits = 2;
  const auto thrown = run_world(3, [&](Session& session) {
    session.begin_round(0, kStream, 7, 1);
    if (session.topology().rank == 1) {
      session.fail_round(0, kStream, "ValueError: no");
      all_failed.wait();
    } else {
      EXPECT_THAT(failure_of(session, "w"),
                  AllOf(StartsWith("tensor 'w': rank 1 has given up round 1 of step 7"), HasSubstr("ValueError: no")));
      if (--waits == 0) failed.set_value();
    }
    session.begin_round(0, kStream, 7, 2);
    EXPECT_EQ(failure_of(session, "w"), "");
  });
  EXPECT_THAT(thrown, Each(""));
}

TEST(SessionRounds, TheTensorsOfAKnownPlanOfTwoRoundsFail) {
  const auto thrown = run_world(2, [](Session& session) {
    std::array<std::array<float, 3>, 4> data = {};
    const auto submit = [&] {
      std::vector<std::shared_ptr<Work>> works;
      for (std::size_t i = 0; i < data.size(); ++i) {
        works.push_back(session.submit(round_spec("w" + std::to_string(i)), data[i].data(), data[i].data()));
      }
      session.wait(works, TimePoint::max());
      return works;
    };
    for (std::uint64_t step = 0; step < 4; ++step) {
      session.begin_round(0, kStream, step, 1);
      for (const auto& work : submit()) work->outcome();
      session.step_end(0);
    }
    session.begin_round(0, kStream, 4, session.topology().rank == 0 ? 1 : 2);
    for (const auto& work : submit()) EXPECT_THROW(work->outcome(), Mismatch);
    session.begin_round(0, kStream, 5, 1);
    for (const auto& work : submit()) work->outcome();
  });
  EXPECT_THAT(thrown, Each(""));
}

TEST(SessionRounds, WhatCannotBeInARoundIsRefused) {
  Session session{Config{}};
  TensorSpec spec = round_spec("w");
  spec.stepwise = false;
  EXPECT_THROW(session.declare(spec), std::invalid_argument);
  spec = round_spec("w");
  spec.kind = CollectiveKind::kBroadcast;
  EXPECT_THROW(session.declare(spec), std::invalid_argument);
  std::array<float, 3> x = {};
  spec = round_spec("");
  spec.once = true;
  EXPECT_THROW(session.run(spec, x.data(), x.data()), std::invalid_argument);
  Unit unit{"u", {round_spec("a"), round_spec("b")}, {{0, x.data(), x.data()}, {0, x.data(), x.data()}}};
  unit.specs[1].round_stream = 6;
  EXPECT_THROW(session.submit(unit), std::invalid_argument);
  EXPECT_THROW(session.begin_round(0, 0, 1, 1), std::invalid_argument);
  EXPECT_THROW(session.fail_round(7, kStream, "no such set"), std::invalid_argument);
}

}  // namespace
}  // namespace horo
