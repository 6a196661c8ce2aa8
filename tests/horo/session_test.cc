#include "horo/session.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <future>
#include <latch>
#include <random>

#include "horo/base/patience.h"
#include "tests/horo/worlds.h"

namespace horo {
namespace {

using testing::Each;
using testing::HasSubstr;

TEST(Session, EveryRankGetsTheSum) {
  const auto thrown = run_world(4, [](Session& session) {
    std::vector<float> x(1000, static_cast<float>(session.topology().rank + 1));
    session.run(float_spec("x", 1000), x.data(), x.data());
    for (const float value : x) ASSERT_EQ(value, 10.0f);
  });
  EXPECT_THAT(thrown, Each(""));
}

TEST(Session, EveryRankNamesADifferingSettingWithBothValues) {
  const std::vector<std::pair<const char*, std::size_t Config::*>> settings = {
      {"HORO_BUCKET_BYTES", &Config::bucket_bytes},     {"HORO_LEAST_BUCKET_BYTES", &Config::least_bucket_bytes},
      {"HORO_SEGMENT_BYTES", &Config::segment_bytes},   {"HORO_CREDIT_BYTES", &Config::credit_bytes},
      {"HORO_MAX_NAME_BYTES", &Config::max_name_bytes}, {"HORO_MAX_DIMS", &Config::max_dims},
      {"HORO_MAX_TENSORS", &Config::max_tensors},       {"HORO_MAX_MESSAGE_BYTES", &Config::max_message_bytes}};
  for (const auto& [name, field] : settings) {
    const auto differ = [field = field](Config& config) {
      config.*field = config.rank == 2 ? std::size_t{4097} : std::size_t{64};
    };
    const auto thrown = run_world(
        4, [](Session&) { FAIL() << "opened"; }, {}, differ);
    EXPECT_THAT(thrown, Each(std::string(name) + " must be equal on all ranks: it is 64 on rank 0 and 4097 on rank 2"));
  }
}

TEST(Session, AWorldOfOneRankReducesLikeAnyOther) {
  Session session{Config{}};
  float x = 3;
  TensorSpec spec = float_spec("x", 1);
  spec.op = ReduceOp::kAverage;
  session.run(spec, &x, &x);
  EXPECT_EQ(x, 3.0f);
}

TEST(Session, ATimelineThatCannotBeWrittenIsNamedWithItsSettingAndRank) {
  Config config;
  config.timeline = "/no/such/folder/trace.json";
  try {
    Session session(config);
    FAIL() << "opened";
  } catch (const std::invalid_argument& error) {
    EXPECT_THAT(error.what(), HasSubstr("HORO_TIMELINE=/no/such/folder/trace.json: rank 0: timeline: cannot write"));
  }
}

// Steps of named gradients; each rank submits them in its own order.
void train(Session& session, int steps, std::vector<std::vector<float>>& gradients) {
  std::mt19937 random(static_cast<unsigned>(session.topology().rank));
  std::vector<Key> keys;
  for (std::size_t i = 0; i < gradients.size(); ++i) {
    TensorSpec spec =
        float_spec(std::string("g").append(std::to_string(i)), static_cast<std::int64_t>(gradients[i].size()));
    spec.stepwise = true;
    keys.push_back(session.declare(spec));
  }
  std::vector<std::size_t> order(keys.size());
  for (std::size_t i = 0; i < order.size(); ++i) order[i] = i;
  for (int step = 0; step < steps; ++step) {
    std::shuffle(order.begin(), order.end(), random);
    std::vector<std::shared_ptr<Work>> works;
    for (const std::size_t i : order) {
      for (float& value : gradients[i]) value = static_cast<float>(session.topology().rank + step);
      works.push_back(session.submit({keys[i], gradients[i].data(), gradients[i].data()}));
    }
    session.wait(works, TimePoint::max());
    for (const auto& work : works) work->outcome();
    session.step_end(0);
    for (const auto& gradient : gradients) ASSERT_EQ(gradient.front(), static_cast<float>(3 + 3 * step));
  }
}

TEST(Session, AfterTheFirstStepsNoMessageHasNames) {
  const auto thrown = run_world(3, [](Session& session) {
    std::vector<std::vector<float>> gradients(50, std::vector<float>(17));
    train(session, 4, gradients);
    const auto before = session.counters().control();
    train(session, 10, gradients);
    const auto after = session.counters().control();
    EXPECT_EQ(after.messages_with_names, before.messages_with_names);
    EXPECT_GT(after.messages_with_bits, before.messages_with_bits);
  });
  EXPECT_THAT(thrown, Each(""));
}

TEST(Session, ADifferentShapeFailsThatTensorOnEveryRankAndTheNextCallWorks) {
  const auto thrown = run_world(2, [](Session& session) {
    std::array<float, 3> x = {1, 1, 1};
    try {
      session.run(float_spec("x", 2 + session.topology().rank), x.data(), x.data());
      FAIL() << "the shapes differ, but the call returned";
    } catch (const Mismatch& e) {
      EXPECT_THAT(e.what(), HasSubstr("'x'"));
      EXPECT_THAT(e.what(), HasSubstr("shape"));
    }
    EXPECT_THAT(x, Each(1.0f));
    session.run(float_spec("x", 3), x.data(), x.data());
    EXPECT_THAT(x, Each(2.0f));
  });
  EXPECT_THAT(thrown, Each(""));
}

TEST(Session, ConcurrentShutdownsAllReturnAfterTheFirst) {
  std::latch begun(2);
  const auto thrown = run_world(2, [&begun](Session& session) {
    begun.arrive_and_wait();  // no shutdown precedes the start of another rank
    float x = 1;
    const auto unfinished = session.submit(float_spec(session.topology().rank == 0 ? "x" : "y", 1), &x, &x);
    std::vector<std::jthread> threads;
    for (int i = 0; i < 4; ++i) {
      threads.emplace_back([&] {
        session.shutdown();
        EXPECT_TRUE(unfinished->finished());
      });
    }
  });
  EXPECT_THAT(thrown, Each(""));
}

// A session that ends with a collective in flight: by an abort of the other rank, or by its own shutdown().
void end_in_flight(bool by_abort, std::latch& ended, std::latch& checked) {
  std::latch looked(1);
  Config config;
  config.beat = std::chrono::milliseconds(100);
  const auto body = [&](Session& session) {
    const bool is_first = session.topology().rank == 0;
    float x = 0;
    std::vector<std::shared_ptr<Work>> works;
    if (is_first) {
      works.push_back(session.submit(float_spec("x", 1), &x, &x));
      for (int turn = 0; turn < 2; ++turn) session.ready_times();  // the second turn has begun after the call above
      looked.count_down();
    }
    looked.wait();
    if (by_abort && !is_first) session.abort("the data set is gone");
    if (!by_abort && is_first) session.shutdown();
    session.wait(works, TimePoint::max());
    ended.count_down();
    checked.wait();
  };
  EXPECT_THAT(run_world(2, body, config), Each(""));
}

// After 2.1 s an engine that does not look at its clock seems to be paused.
TEST(Session, OneThatHasEndedHoldsUpNoDeadlineOfAnother) {
  std::latch ended(4), checked(1);
  std::jthread aborted([&] { end_in_flight(true, ended, checked); });
  std::jthread left([&] { end_in_flight(false, ended, checked); });
  ended.wait();
  const TimePoint deadline = Clock::now();
  std::promise<void> never;
  never.get_future().wait_until(deadline + std::chrono::milliseconds(2'100));
  EXPECT_TRUE(has_passed(deadline));
  checked.count_down();
}

TEST(Session, AnAbsentRankReceivesTheSumOfTheOthers) {
  const auto thrown = run_world(3, [](Session& session) {
    float x = 5;
    const Key key = session.declare(float_spec("x", 1));
    const std::vector works = {session.submit({key, &x, &x, session.topology().rank == 1})};
    session.wait(works, TimePoint::max());
    EXPECT_FALSE(works[0]->outcome().absent);
    EXPECT_EQ(x, 10.0f);
  });
  EXPECT_THAT(thrown, Each(""));
}

TEST(Session, ATensorThatIsAbsentEverywhereIsNotWritten) {
  const auto thrown = run_world(2, [](Session& session) {
    float x = 5;
    const Key key = session.declare(float_spec("x", 1));
    const std::vector works = {session.submit({key, nullptr, &x, true})};
    session.wait(works, TimePoint::max());
    EXPECT_TRUE(works[0]->outcome().absent);
    EXPECT_EQ(x, 5.0f);
  });
  EXPECT_THAT(thrown, Each(""));
}

TEST(Session, UnevenRowsAreGatheredInOrderOfRanks) {
  const auto thrown = run_world(3, [](Session& session) {
    const int rank = session.topology().rank;
    const std::vector<float> rows(static_cast<std::size_t>(rank), static_cast<float>(rank));
    TensorSpec spec = float_spec("", rank);
    spec.once = true;
    spec.kind = CollectiveKind::kAllGather;
    const std::vector works = {session.submit(spec, rows.data(), nullptr)};
    session.wait(works, TimePoint::max());
    const Outcome& outcome = works[0]->outcome();
    const auto* gathered = reinterpret_cast<const float*>(outcome.data.get());
    EXPECT_THAT(outcome.counts, testing::ElementsAre(0, 1, 2));
    EXPECT_THAT(std::vector<float>(gathered, gathered + outcome.bytes / 4), testing::ElementsAre(1, 2, 2));
  });
  EXPECT_THAT(thrown, Each(""));
}

TEST(Session, AShutdownEndsWorksInFlight) {
  Config config;
  config.stall_limit = std::chrono::milliseconds(600'000);
  const auto thrown = run_world(
      2,
      [](Session& session) {
        if (session.topology().rank == 0) {
          float x = 0;
          const std::vector works = {session.submit(float_spec("x", 1), &x, &x)};
          session.shutdown();
          session.wait(works, TimePoint::max());
          works[0]->outcome();
        }
      },
      config);
  EXPECT_NE(thrown[0], "");
}

TEST(Session, ATensorThatOneRankNeverSubmitsFailsWithItsName) {
  Config config;
  config.stall_limit = std::chrono::milliseconds(50);
  const auto thrown = run_world(
      2,
      [](Session& session) {
        float x = 0, y = 0;
        if (session.topology().rank == 0) session.run(float_spec("lonely", 1), &x, &x);
        if (session.topology().rank == 1) session.run(float_spec("other", 1), &y, &y);
      },
      config);
  EXPECT_THAT(thrown[0], HasSubstr("lonely"));
  EXPECT_THAT(thrown[1], HasSubstr("other"));
}

}  // namespace
}  // namespace horo
