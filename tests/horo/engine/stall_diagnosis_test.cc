#include "horo/engine/stall_diagnosis.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <future>
#include <latch>
#include <thread>

#include "tests/horo/worlds.h"

namespace horo {
namespace {

using namespace std::chrono_literals;
using testing::AllOf;
using testing::HasSubstr;

TEST(StallDiagnosis, WithoutAListenerNoQuestionIsAsked) {
  StallDiagnosis diagnosis;
  EXPECT_FALSE(diagnosis.ask(1));
  EXPECT_FALSE(diagnosis.next(Clock::now()).has_value());
  EXPECT_TRUE(diagnosis.ask(2));
  EXPECT_EQ(diagnosis.next(Clock::now()), 2U);
}

TEST(StallDiagnosis, AQuestionIsReturnedOnceAndAnsweredOnce) {
  StallDiagnosis diagnosis;
  diagnosis.next(Clock::now());
  diagnosis.ask(7);
  EXPECT_EQ(diagnosis.next(TimePoint::max()), 7U);
  EXPECT_FALSE(diagnosis.next(Clock::now()).has_value());
  EXPECT_FALSE(diagnosis.answer(6, "too late"));
  EXPECT_TRUE(diagnosis.answer(7, "here"));
  EXPECT_FALSE(diagnosis.answer(7, "again"));
  const std::vector<Diagnosed> answers = diagnosis.take();
  ASSERT_EQ(answers.size(), 1U);
  EXPECT_EQ(answers[0].call_sites, "here");
}

TEST(StallDiagnosis, CloseEndsNext) {
  StallDiagnosis diagnosis;
  std::jthread closer([&] { diagnosis.close(); });
  EXPECT_THROW(diagnosis.next(TimePoint::max()), ShutDown);
}

// Answers all questions until the session ends.
std::jthread start_answering(Session& session, std::string where) {
  session.next_question(Clock::now());
  return std::jthread([&session, where = std::move(where)] {
    try {
      for (;;) {
        if (const auto question = session.next_question(TimePoint::max())) session.answer(*question, where);
      }
    } catch (const ShutDown&) {
    }
  });
}

Config short_limits() {
  Config config;
  config.stall_limit = 200ms;
  config.answer_timeout = 30s;  // long, because the last answer ends the stall
  return config;
}

TEST(Stall, TheErrorHasTheStacksOfBothSides) {
  std::latch failed(2);
  const auto thrown = run_world(
      3,
      [&failed](Session& session) {
        const int rank = session.topology().rank;
        const std::jthread thread = start_answering(session, "rank" + std::to_string(rank) + ".py:1 main");
        float x = 0;
        std::string text;
        try {
          if (rank != 1) session.run(float_spec("x", 1), &x, &x);
        } catch (const Mismatch& e) {
          text = e.what();
          failed.count_down();
        }
        failed.wait();
        session.run(float_spec("after", 1), &x, &x);
        session.shutdown();
        if (rank != 1) throw std::runtime_error(text);
      },
      short_limits());
  EXPECT_THAT(thrown[0], AllOf(HasSubstr("tensor 'x': submitted by ranks 0, 2, but not by rank 1 within 200 ms"),
                               HasSubstr("rank 0, which submitted it, is here:\n  rank0.py:1 main"),
                               HasSubstr("rank 1, which did not, is here:\n  rank1.py:1 main")));
  EXPECT_EQ(thrown[2], thrown[0]);
  EXPECT_EQ(thrown[1], "");
}

TEST(Stall, AfterAStalledUnnamedCallTheCountersOfTheRanksMatch) {
  std::latch failed(1);
  const auto thrown = run_world(
      2,
      [&failed](Session& session) {
        const int rank = session.topology().rank;
        TensorSpec unnamed = float_spec("", 1);
        unnamed.once = true;
        float x = 1;
        const auto fails = [&] { EXPECT_THROW(session.run(unnamed, &x, &x), Mismatch); };
        if (rank == 1) failed.wait();
        fails();
        if (rank == 0) failed.count_down();
        session.run(unnamed, &x, &x);
        EXPECT_EQ(x, 2.0f);
      },
      short_limits());
  EXPECT_THAT(thrown, testing::Each(""));
}

Config short_deadlock() {
  Config config;
  config.stall_warning = 50ms;
  config.deadlock_limit = 500ms;
  config.answer_timeout = 30s;
  return config;
}

TEST(Deadlock, RanksThatWaitForEachOtherFailAndContinue) {
  const auto thrown = run_world(
      3,
      [](Session& session) {
        const int rank = session.topology().rank;
        const std::jthread thread = start_answering(session, "rank" + std::to_string(rank) + ".py:1 main");
        float x = 0;
        const std::string text = thrown_by([&] { session.run(float_spec(rank == 1 ? "y" : "x", 1), &x, &x); });
        session.run(float_spec("after", 1), &x, &x);
        meet(session);
        session.shutdown();
        throw std::runtime_error(text);
      },
      short_deadlock());
  EXPECT_THAT(thrown[0], AllOf(HasSubstr("tensor 'x': submitted by ranks 0, 2, but not by rank 1. This is a deadlock: "
                                         "ranks 0-2 wait for one another, and all of their callers have waited for "
                                         "500 ms (HORO_DEADLOCK_MS)"),
                               HasSubstr("rank 1, which did not, is here:\n  rank1.py:1 main")));
  EXPECT_EQ(thrown[2], thrown[0]);
  EXPECT_THAT(thrown[1], HasSubstr("tensor 'y': submitted by rank 1, but not by ranks 0, 2."));
}

// Slices as of a Python caller, which handles signals in between.
TEST(Deadlock, ACallerThatWaitsInSlicesIsPartOfIt) {
  const auto thrown = run_world(
      2,
      [](Session& session) {
        float x = 0;
        const auto work = session.submit(float_spec(session.topology().rank == 1 ? "y" : "x", 1), &x, &x);
        while (!session.wait(std::span(&work, 1), Clock::now() + 20ms)) {
        }
        EXPECT_THAT(thrown_by([&] { work->outcome(); }), HasSubstr("ranks 0, 1 wait for one another"));
        meet(session);
      },
      short_deadlock());
  EXPECT_THAT(thrown, testing::Each(""));
}

// Ranks 1 and 2 are outside of the library for several times the limits.
TEST(Deadlock, ASlowRankFailsNothing) {
  const auto thrown = run_world(
      3,
      [](Session& session) {
        const int rank = session.topology().rank;
        float x = 1, y = 1;
        const auto early = session.submit(float_spec(rank == 1 ? "y" : "x", 1), &y, &y);
        if (rank != 0) std::promise<void>().get_future().wait_for(3s);
        const auto late = session.submit(float_spec(rank == 1 ? "x" : "y", 1), &x, &x);
        outcome_of(session, early);
        outcome_of(session, late);
        meet(session);
      },
      short_deadlock());
  EXPECT_THAT(thrown, testing::Each(""));
}

// Rank 1 of one world is busy until the ranks of the other world have failed.
TEST(Deadlock, TheSessionsOfOneProcessAreSeparate) {
  std::latch failed(2);
  const auto cross = [&failed](Session& session) {
    float x = 0;
    const std::string name = session.topology().rank == 1 ? "y" : "x";
    EXPECT_THROW(session.run(float_spec(name, 1), &x, &x), Mismatch);
    failed.count_down();
    meet(session);
  };
  const auto slow = [&failed](Session& session) {
    float x = 0;
    if (session.topology().rank == 1) {
      session.submit(float_spec("y", 1), &x, &x);
      failed.wait();
    }
    float z = 0;
    session.run(float_spec("x", 1), &z, &z);
    if (session.topology().rank == 0) session.run(float_spec("y", 1), &z, &z);
    meet(session);
  };
  auto other = std::async(std::launch::async, [&] { return run_world(2, slow, short_deadlock()); });
  EXPECT_THAT(run_world(2, cross, short_deadlock()), testing::Each(""));
  EXPECT_THAT(other.get(), testing::Each(""));
}

TEST(ReadyTimes, RankZeroHasTheTimesOfAllRanks) {
  const auto thrown = run_world(2, [](Session& session) {
    const int rank = session.topology().rank;
    float x = 0, y = 0;
    for (int step = 0; step < 5; ++step) {
      TensorSpec first = float_spec("\"first\"", 1);
      TensorSpec second = float_spec("second", 1);
      first.stepwise = second.stepwise = true;
      session.run(first, &x, &x);
      session.run(second, &y, &y);
      session.step_end(0);
    }
    const std::vector<ReadyTime> times = session.ready_times();
    ASSERT_EQ(times.size(), 2U);
    EXPECT_EQ(times[0].since[1 - rank] == TimePoint::min(), rank == 1);
    EXPECT_GE(times[1].since[rank], times[0].since[rank]);
    EXPECT_THAT(ready_times_json(times), HasSubstr(rank == 0 ? R"("\"first\"": [)" : R"("\"first\"": [null, 0.000])"));
    session.shutdown();
    EXPECT_TRUE(session.ready_times().empty());
  });
  EXPECT_THAT(thrown, testing::Each(""));
}

}  // namespace
}  // namespace horo
