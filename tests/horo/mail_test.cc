// Messages between two ranks, joins and units through sessions.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <future>
#include <thread>

#include "horo/tensors/tensor_table.h"
#include "tests/horo/worlds.h"
#include "tests/ring/run_ranks.h"

namespace horo {
namespace {

using testing::Each;
using testing::HasSubstr;

using enum CollectiveKind;

TensorSpec message(const std::string& name, int from, int to, std::int64_t elements = 1) {
  TensorSpec spec = spec_of(kSendRecv, name, {elements});
  spec.root = from;
  spec.peer = to;
  return spec;
}

TEST(Mail, AMessageArrivesAndTheInputIsNotChanged) {
  const auto thrown = run_world(3, [](Session& session) {
    const int rank = session.topology().rank;
    if (rank == 1) return;
    std::vector<float> x(200'000, static_cast<float>(rank));
    const TensorSpec spec = message("x", 2, 0, 200'000);
    session.run(spec, rank == 2 ? x.data() : nullptr, rank == 0 ? x.data() : nullptr);
    EXPECT_THAT(x, Each(2.0f));
  });
  EXPECT_THAT(thrown, Each(""));
}

// Both ranks submit their sends before their receives, each in its own order: no message waits for another.
TEST(Mail, CrossingMessagesInAnyOrderArrive) {
  const auto thrown = run_world(2, [](Session& session) {
    const int rank = session.topology().rank;
    constexpr int kMessages = 20;
    std::vector<std::vector<float>> in(kMessages, std::vector<float>(1000)), out = in;
    std::vector<std::shared_ptr<Work>> works;
    for (int i = 0; i < kMessages; ++i) {
      const int number = rank == 0 ? i : kMessages - 1 - i;
      const auto at = static_cast<std::size_t>(number);
      const std::string name = "m" + std::to_string(number);
      in[at].assign(1000, static_cast<float>(100 * rank + number));
      works.push_back(session.submit(message(name, rank, 1 - rank, 1000), in[at].data(), nullptr));
      works.push_back(session.submit(message(name, 1 - rank, rank, 1000), nullptr, out[at].data()));
    }
    session.wait(works, TimePoint::max());
    for (const auto& work : works) work->outcome();
    for (int i = 0; i < kMessages; ++i) {
      EXPECT_THAT(out[static_cast<std::size_t>(i)], Each(static_cast<float>(100 * (1 - rank) + i)));
    }
  });
  EXPECT_THAT(thrown, Each(""));
}

TEST(Mail, UnnamedMessagesOfAPairMatchInOrder) {
  const auto thrown = run_world(3, [](Session& session) {
    const int rank = session.topology().rank;
    for (int i = 0; i < 5; ++i) {
      for (const int to : {1, 2}) {
        float x = static_cast<float>(10 * to + i);
        if (rank == 0) session.run(message("", 0, to), &x, nullptr);
        float y = 0;
        if (rank == to) session.run(message("", 0, to), nullptr, &y);
        if (rank == to) {
          EXPECT_EQ(y, x);
        }
      }
    }
    meet(session);
  });
  EXPECT_THAT(thrown, Each(""));
}

// In each rank three threads exchange messages with all other ranks. Each message has values of its own, so that none
// takes the place of another.
void exchange_with_all(Session& session, int thread) {
  const int rank = session.topology().rank, size = session.topology().size;
  const auto peer_of = [=](int step) { return (rank + (thread == 0 ? size - step : step)) % size; };
  for (int round = 0; round < 20; ++round) {
    const std::int64_t count = std::array{0, 1, 100, 20'000, 70'000}[static_cast<std::size_t>(round % 5)];
    const int base = 1000 * round + 100 * thread;
    const auto value = [base](int from, int to) { return static_cast<float>(base + 10 * from + to); };
    std::vector<std::vector<float>> in, out;
    std::vector<std::shared_ptr<Work>> works;
    for (int step = 1; step < size; ++step) {
      const int peer = peer_of(step);
      const std::string name = std::to_string(thread) + "." + std::to_string(round % 8);
      in.emplace_back(count + 1, value(rank, peer));
      out.emplace_back(count + 1, -1.0F);
      works.push_back(session.submit(message(name, rank, peer, count), in.back().data(), nullptr));
      works.push_back(session.submit(message(name, peer, rank, count), nullptr, out.back().data()));
    }
    for (const auto& work : works) {
      while (!session.wait(std::span(&work, 1), Clock::now() + std::chrono::microseconds(30 * round))) continue;
      work->outcome();
    }
    for (int step = 1; step < size; ++step) {
      std::vector<float>& one = out[static_cast<std::size_t>(step - 1)];
      ASSERT_EQ(one.back(), -1.0F);
      one.pop_back();
      ASSERT_EQ(std::ranges::count(one, value(peer_of(step), rank)), count) << "round " << round;
    }
  }
}

TEST(Mail, MessagesOfManyPairsAndThreadsArriveInOrder) {
  for (const test::Wire wire : {test::Wire::kShm, test::Wire::kTcp}) {
    test::run_ranks_well({4, wire, {}}, [](test::Rank& rank) {
      Session session(rank.config, std::move(rank.links));
      std::vector<std::jthread> threads;
      for (int thread = 0; thread < 3; ++thread) {
        threads.emplace_back([&session, thread] { exchange_with_all(session, thread); });
      }
      threads.clear();
      meet(session);
    });
  }
}

// The wait of a caller, which sleeps in the lane of messages, ends with the world.
TEST(Mail, AReceiverThatSleepsIsToldOfAnAbort) {
  test::run_ranks_well({3, test::Wire::kShm, {}}, [](test::Rank& rank) {
    const int index = rank.index();
    Session session(rank.config, std::move(rank.links));
    meet(session);
    if (index == 2) {
      for (const TimePoint until = Clock::now() + std::chrono::milliseconds(10); Clock::now() < until;) {
        std::this_thread::yield();
      }
      return session.abort("enough");
    }
    float x = 0;
    EXPECT_THAT(thrown_by([&] { session.run(message("x", 2, index), nullptr, &x); }), HasSubstr("enough"));
  });
}

// The engine does not wait for more submissions, or for a caller that waits.
TEST(Mail, NothingIsCollectedBesideAMessage) {
  Config config;
  config.size = 2;
  const Registry registry;
  TensorTable table(config, registry);
  float x = 0;
  EXPECT_TRUE(table.submit(message("x", 0, 1), {0, &x, nullptr}).works.front()->is_message());
  const TimePoint until = Clock::now() + std::chrono::seconds(5);
  table.wait_for_quiet(until, std::chrono::hours(1));
  EXPECT_LT(Clock::now(), until);
}

TEST(Mail, RanksOfAMessageAreThoseInItsSet) {
  const auto thrown = run_world(4, [](Session& session) {
    const int rank = session.topology().rank;
    const auto added = session.add_set({1, 3});
    TensorSpec spec = message("x", 1, 0);
    spec.set = static_cast<std::uint32_t>(outcome_of(session, added).counts.at(0));
    if (rank % 2 == 1) {
      float x = static_cast<float>(rank);
      session.run(spec, &x, &x);
      EXPECT_EQ(x, 3.0f);
      EXPECT_EQ(session.counters().collectives(spec.set, kSendRecv).count, 1u);
    }
    meet(session);
  });
  EXPECT_THAT(thrown, Each(""));
}

TEST(Mail, AMessageOfAnotherTypeFailsOnBothSides) {
  const auto thrown = run_world(3, [](Session& session) {
    const int rank = session.topology().rank;
    if (rank == 2) return;
    double x = 0;
    TensorSpec spec = message("x", 0, 1);
    if (rank == 1) spec.dtype = DType::kFloat64;
    session.run(spec, &x, &x);
  });
  EXPECT_THAT(thrown[0], HasSubstr("float32 on rank 0; float64 on rank 1"));
  EXPECT_EQ(thrown[0], thrown[1]);
}

TEST(Mail, ARankThatIsNeitherSenderNorReceiverIsRefused) {
  const auto thrown = run_world(3, [](Session& session) {
    if (session.topology().rank != 2) return;
    float x = 0;
    session.run(message("x", 0, 1), &x, &x);
  });
  EXPECT_THAT(thrown[2], HasSubstr("rank 2 is neither its sender, rank 0, nor its receiver, rank 1"));
}

TEST(Join, RanksWithMoreDataContinueAndTheOthersCountAsZeros) {
  const auto thrown = run_world(4, [](Session& session) {
    const int rank = session.topology().rank;
    const Key key = [&] {
      TensorSpec spec = float_spec("x", 2);
      spec.op = ReduceOp::kAverage;
      return session.declare(spec);
    }();
    for (int step = 0; step <= rank; ++step) {
      std::vector<float> x(2, 4.0f);
      outcome_of(session, session.submit({key, x.data(), x.data()}));
      EXPECT_THAT(x, Each(static_cast<float>(4 - step)));  // the number of ranks with more steps than this one
    }
    const auto joined = session.join(0);
    EXPECT_EQ(outcome_of(session, joined).counts.at(0), 3);
    std::vector<float> x(2, 1.0f);
    outcome_of(session, session.submit({key, x.data(), x.data()}));
    EXPECT_THAT(x, Each(1.0f));
  });
  EXPECT_THAT(thrown, Each(""));
}

TEST(Join, GradientsOfKnownPlansContinueToo) {
  const auto thrown = run_world(3, [](Session& session) {
    const int rank = session.topology().rank;
    std::vector<Key> keys;
    for (int i = 0; i < 20; ++i) {
      TensorSpec spec = float_spec(std::string("g").append(std::to_string(i)), 10);
      spec.stepwise = true;
      keys.push_back(session.declare(spec));
    }
    for (int epoch = 0; epoch < 2; ++epoch) {
      const int steps = 5 + 3 * rank;
      for (int step = 0; step < steps; ++step) {
        std::vector<std::vector<float>> x(keys.size(), std::vector<float>(10, 1.0f));
        std::vector<std::shared_ptr<Work>> works;
        for (std::size_t i = 0; i < keys.size(); ++i)
          works.push_back(session.submit({keys[i], x[i].data(), x[i].data()}));
        session.wait(works, TimePoint::max());
        for (const auto& work : works) work->outcome();
        session.step_end(0);
        const int with = step < 5 ? 3 : step < 8 ? 2 : 1;
        for (const auto& one : x) ASSERT_THAT(one, Each(static_cast<float>(with))) << "step " << step;
      }
      EXPECT_EQ(outcome_of(session, session.join(0)).counts.at(0), 2);
    }
  });
  EXPECT_THAT(thrown, Each(""));
}

TEST(Join, ARankThatHasJoinedSubmitsNothingUntilAllHave) {
  std::promise<void> refused;
  const auto thrown = run_world(2, [&refused](Session& session) {
    if (session.topology().rank == 1) refused.get_future().wait();
    const auto joined = session.join(0);
    if (session.topology().rank == 0) {
      float x = 0;
      EXPECT_THAT(thrown_by([&] { session.run(float_spec("x", 1), &x, &x); }),
                  HasSubstr("rank 0 has joined the world"));
      EXPECT_THAT(thrown_by([&] { session.join(0); }), HasSubstr("rank 0 has joined the world already"));
      EXPECT_THAT(thrown_by([&] { session.add_set({1}); }), HasSubstr("rank 0 has joined the world"));
      refused.set_value();
    }
    outcome_of(session, joined);
    float x = 1;
    session.run(float_spec("x", 1), &x, &x);
    EXPECT_EQ(x, 2.0f);
  });
  EXPECT_THAT(thrown, Each(""));
}

TEST(Join, OtherCollectivesAreRefusedWhileARankHasJoined) {
  const auto thrown = run_world(3, [](Session& session) {
    const int rank = session.topology().rank;
    const std::string expected = "is not possible while rank";
    float x = 0;
    if (rank != 1) {
      const std::string text = thrown_by([&] { session.run(spec_of(kBroadcast, "b", {1}), &x, &x); });
      EXPECT_THAT(text, HasSubstr(expected));
    }
    outcome_of(session, session.join(0));
  });
  EXPECT_THAT(thrown, Each(""));
}

TEST(Unit, TensorsOfDifferentKindsAreRun) {
  const auto thrown = run_world(3, [](Session& session) {
    const int rank = session.topology().rank;
    for (const char* name : {"", "block", ""}) {
      std::vector<float> a(5, 1.0f), b(7, 2.0f), c(1, static_cast<float>(rank));
      Unit unit{name, {spec_of(kAllReduce, "", {5}), spec_of(kAllReduce, "", {7}), spec_of(kBroadcast, "", {1})}, {}};
      unit.specs[2].root = 2;
      for (std::vector<float>* x : {&a, &b, &c}) unit.submissions.push_back({0, x->data(), x->data()});
      const auto works = session.submit(std::move(unit));
      session.wait(works, TimePoint::max());
      for (const auto& work : works) work->outcome();
      EXPECT_THAT(a, Each(3.0f));
      EXPECT_THAT(b, Each(6.0f));
      EXPECT_THAT(c, Each(2.0f));
    }
  });
  EXPECT_THAT(thrown, Each(""));
}

TEST(Unit, IfOneTensorDiffersAllFailAndNoneIsWritten) {
  const auto thrown = run_world(2, [](Session& session) {
    const int rank = session.topology().rank;
    std::vector<float> a(5, 1.0f), b(7, 1.0f);
    Unit unit{"block", {spec_of(kAllReduce, "", {5}), spec_of(kAllReduce, "", {6 + rank})}, {}};
    for (std::vector<float>* x : {&a, &b}) unit.submissions.push_back({0, x->data(), x->data()});
    const auto works = session.submit(std::move(unit));
    for (const auto& work : works) {
      EXPECT_THAT(thrown_by([&] { outcome_of(session, work); }), HasSubstr("block_2of2"));
    }
    EXPECT_THAT(a, Each(1.0f));
    EXPECT_THAT(b, Each(1.0f));
  });
  EXPECT_THAT(thrown, Each(""));
}

TEST(Unit, AnInvalidCallQueuesNothingAndIsNotCounted) {
  const auto thrown = run_world(2, [](Session& session) {
    float x = 1;
    const auto unit_of = [&](std::vector<TensorSpec> specs) {
      const std::vector<Submission> all(specs.size(), {0, &x, &x});
      return Unit{"", std::move(specs), all};
    };
    if (session.topology().rank == 0) {
      const TensorSpec good = spec_of(kAllReduce, "", {1});
      EXPECT_THROW(session.submit(unit_of({good, spec_of(kAllReduce, "", {-1})})), std::invalid_argument);
      EXPECT_THROW(session.submit(unit_of({good, spec_of(kBarrier, "", {})})), std::invalid_argument);
      EXPECT_THROW(session.submit(unit_of({})), std::invalid_argument);
      EXPECT_THROW(session.submit(unit_of({float_spec("a", 1), float_spec("a", 1)})), std::invalid_argument);
    }
    const auto works = session.submit(unit_of({spec_of(kAllReduce, "", {1})}));
    outcome_of(session, works.front());
    EXPECT_EQ(x, 2.0f);
  });
  EXPECT_THAT(thrown, Each(""));
}

}  // namespace
}  // namespace horo
