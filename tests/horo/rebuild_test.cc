// The change of epochs: what is in flight, declared or agreed on at the end of one is right in the next.
#include <gmock/gmock.h>

#include <array>
#include <barrier>
#include <latch>
#include <numeric>
#include <random>
#include <set>

#include "horo/base/error.h"
#include "tests/horo/worlds.h"
#include "tests/ring/run_ranks.h"

namespace horo {
namespace {

using testing::Each;
using testing::HasSubstr;

using Where = std::pair<test::Wire, int>;

class Rebuild : public testing::TestWithParam<Where> {
 protected:
  // Runs the body on all ranks, none of which may throw.
  void run(const std::function<void(Session&)>& body, std::chrono::milliseconds stall_limit = {}) {
    const auto [wire, size] = GetParam();
    const std::string addr = test::free_address();
    std::vector<std::function<void()>> ranks;
    for (int rank = 0; rank < size; ++rank) {
      ranks.push_back([&, rank, wire = wire, size = size] {
        Config config = test::config_of(rank, size, addr);
        config.transport = wire == test::Wire::kShm ? "shm" : "tcp";
        config.stall_limit = stall_limit;
        Session session(config);
        body(session);
        meet(session);
      });
    }
    for (const auto& error : test::run_threads(ranks)) EXPECT_EQ(test::message_of(error), "");
  }
};
INSTANTIATE_TEST_SUITE_P(Wires, Rebuild,
                         testing::Values(Where(test::Wire::kTcp, 3), Where(test::Wire::kShm, 3),
                                         Where(test::Wire::kShm, 2), Where(test::Wire::kTcp, 1)),
                         [](const auto& info) {
                           return std::string(test::name_of(info.param.first)) + std::to_string(info.param.second);
                         });

// The number of the next epoch.
std::int64_t rebuild_now(Session& session) {
  return outcome_of(session, session.rebuild()).counts.at(0);
}

float sum_of_ranks(Session& session) {
  const int size = session.topology().size;
  return static_cast<float>(size * (size - 1)) / 2;
}

// A tensor of one value, this rank's number plus a constant.
class One {
 public:
  One(Session& session, const TensorSpec& spec, float plus) : session_(session), plus_(plus) {
    value_ = static_cast<float>(session.topology().rank) + plus;
    work_ = session.submit(spec, &value_, &value_);
  }
  bool has_ended() const { return work_->finished(); }
  void expect_sum() {
    outcome_of(session_, work_);
    EXPECT_EQ(value_, sum_of_ranks(session_) + plus_ * static_cast<float>(session_.topology().size));
  }

 private:
  Session& session_;
  float plus_, value_ = 0;
  std::shared_ptr<Work> work_;
};

TensorSpec sum_spec(const std::string& name) {
  TensorSpec spec = float_spec(name, 1);
  spec.op = ReduceOp::kSum;
  return spec;
}

constexpr std::uint64_t kRebuiltStream = 9;

TensorSpec in_round(const std::string& name) {
  TensorSpec spec = sum_spec(name);
  spec.stepwise = true;
  spec.round_stream = kRebuiltStream;
  return spec;
}

TEST_P(Rebuild, WorksThatSomeRanksSubmittedEndInTheNextEpoch) {
  std::latch looked(1);  // rank 0 has seen its works before other ranks submit theirs
  run([&](Session& session) {
    const Topology before = session.topology();
    const auto key = session.declare(sum_spec("b"));
    std::optional<One> a, b;
    if (before.rank == 0) a.emplace(session, sum_spec("a"), 1), b.emplace(session, sum_spec("b"), 2);
    EXPECT_EQ(rebuild_now(session), 1);
    EXPECT_EQ(session.topology().epoch, before.epoch + 1);
    EXPECT_EQ(session.topology().rank, before.rank);
    EXPECT_FALSE(before.rank == 0 && before.size > 1 && (a->has_ended() || b->has_ended()));
    if (before.rank == 0) looked.count_down();
    looked.wait();
    if (before.rank != 0) b.emplace(session, sum_spec("b"), 2), a.emplace(session, sum_spec("a"), 1);
    a->expect_sum();
    b->expect_sum();
    EXPECT_EQ(session.declare(sum_spec("b")), key);
  });
}

TEST_P(Rebuild, CollectivesBeforeItEndBeforeIt) {
  run([](Session& session) {
    std::vector<std::vector<float>> values;
    std::vector<std::shared_ptr<Work>> works;
    for (int i = 0; i < 20; ++i) values.emplace_back(50'000, static_cast<float>(i));
    for (std::size_t i = 0; i < values.size(); ++i) {
      TensorSpec spec = float_spec("x" + std::to_string(i), static_cast<std::int64_t>(values[i].size()));
      spec.op = ReduceOp::kSum;
      works.push_back(session.submit(spec, values[i].data(), values[i].data()));
    }
    rebuild_now(session);
    session.wait(works, TimePoint::max());
    for (std::size_t i = 0; i < values.size(); ++i) {
      works[i]->outcome();
      EXPECT_THAT(values[i], Each(static_cast<float>(i) * static_cast<float>(session.topology().size)));
    }
  });
}

// Steps of stepwise tensors, whose plan is learned again in each epoch.
TEST_P(Rebuild, PlansAreLearnedAgain) {
  run([](Session& session) {
    std::array<float, 5> values{};
    const auto step = [&] {
      std::vector<std::shared_ptr<Work>> works;
      for (std::size_t i = 0; i < values.size(); ++i) {
        TensorSpec spec = sum_spec("w" + std::to_string(i));
        spec.stepwise = true;
        values[i] = static_cast<float>(i) + 1;
        works.push_back(session.submit(spec, &values[i], &values[i]));
      }
      session.wait(works, TimePoint::max());
      session.step_end(0);
      for (std::size_t i = 0; i < values.size(); ++i) {
        works[i]->outcome();
        EXPECT_EQ(values[i], (static_cast<float>(i) + 1) * static_cast<float>(session.topology().size));
      }
      return session.places(works).front().plan;
    };
    std::set<PlanId> plans;
    for (int epoch = 1; epoch < 4; ++epoch) {
      bool all_know = false;
      for (int i = 0; i < 2'000 && !all_know; ++i) {
        float knows = step() == 0 ? 0 : 1;
        TensorSpec spec = float_spec("knows", 1);
        spec.op = ReduceOp::kMin;
        session.run(spec, &knows, &knows);
        all_know = knows == 1;
      }
      EXPECT_TRUE(all_know);
      EXPECT_TRUE(plans.insert(step()).second);  // a number of its own in each epoch
      for (int i = 0; i < 3; ++i) step();
      const std::uint64_t version = session.plans_version();
      EXPECT_EQ(rebuild_now(session), epoch);
      EXPECT_NE(session.plans_version(), version);
    }
    step();
  });
}

TEST_P(Rebuild, ProcessSetsAndJoinsStay) {
  run([](Session& session) {
    const int size = session.topology().size, rank = session.topology().rank;
    if (size < 3) return;
    const auto set = static_cast<std::uint32_t>(outcome_of(session, session.add_set({0, 2}, "ends")).counts[0]);
    TensorSpec spec = sum_spec("s");
    spec.set = set;
    std::shared_ptr<Work> join;
    if (rank == 2) join = session.join(set);
    rebuild_now(session);
    EXPECT_EQ(session.set_info(set).name, "ends");
    if (rank == 0) {
      float x = 5;
      session.run(spec, &x, &x);
      EXPECT_EQ(x, 5);  // rank 2 has joined
      EXPECT_EQ(outcome_of(session, session.join(set)).counts[0], 0);
    }
    if (rank == 2) {
      EXPECT_EQ(outcome_of(session, join).counts[0], 0);
    }
    rebuild_now(session);
    outcome_of(session, session.remove_set(set));
    EXPECT_EQ(outcome_of(session, session.add_set({0, 1})).counts[0], set + 1);
  });
}

// Unnamed calls match by their numbers, so the call of the late rank fails like those of the others.
TEST_P(Rebuild, AFailureThatARankHasNotMetFailsItInTheNextEpoch) {
  std::barrier failed(3);
  const auto body = [&](Session& session) {
    if (session.topology().size < 3) return;
    const auto reduce = [&] {
      float x = 1;
      session.run(spec_of(CollectiveKind::kAllReduce, "", {1}), &x, &x);
    };
    if (session.topology().rank != 2) {
      EXPECT_THAT(thrown_by(reduce), HasSubstr("not by rank 2"));
    }
    failed.arrive_and_wait();
    rebuild_now(session);
    if (session.topology().rank == 2) {
      EXPECT_THAT(thrown_by(reduce), HasSubstr("not by rank 2"));
    }
    reduce();
  };
  run(body, std::chrono::milliseconds(300));
}

TEST_P(Rebuild, RoundsStay) {
  run([](Session& session) {
    const int rank = session.topology().rank;
    session.begin_round(0, kRebuiltStream, 1, 1);
    std::optional<One> old;
    if (rank == 0) old.emplace(session, in_round("old"), 1);
    if (rank == 0) session.begin_round(0, kRebuiltStream, 1, 2);
    rebuild_now(session);
    if (rank != 0) old.emplace(session, in_round("old"), 1);  // round 1 on all ranks
    old->expect_sum();
    if (rank != 0) session.begin_round(0, kRebuiltStream, 1, 2);
    One(session, in_round("new"), 3).expect_sum();
    session.begin_round(0, kRebuiltStream, 1, 3);
    if (rank == 0) session.fail_round(0, kRebuiltStream, "ValueError: no");
    rebuild_now(session);
    if (rank == 0) return;
    EXPECT_THAT(thrown_by([&] { One(session, in_round("gone"), 1).expect_sum(); }), HasSubstr("ValueError: no"));
  });
}

// Rank 0 has begun a later round; the others are still in the one that it gave up.
TEST_P(Rebuild, AGivenUpRoundStaysGivenUp) {
  run([](Session& session) {
    const TensorSpec spec = in_round("w");
    One(session, spec, 1).expect_sum();  // before the first round
    session.begin_round(0, kRebuiltStream, 1, 3);
    const bool is_first = session.topology().rank == 0;
    std::optional<One> one;
    if (is_first) {
      session.fail_round(0, kRebuiltStream, "ValueError: no");
      session.begin_round(0, kRebuiltStream, 1, 4);
      one.emplace(session, spec, 2);
    }
    rebuild_now(session);
    if (!is_first) {
      EXPECT_THAT(thrown_by([&] { One(session, spec, 1).expect_sum(); }), HasSubstr("ValueError: no"));
      session.begin_round(0, kRebuiltStream, 1, 4);
      one.emplace(session, spec, 2);
    }
    one->expect_sum();
  });
}

TEST_P(Rebuild, ATensorThatWasSubmittedBeforeTheFirstRoundBelongsToNone) {
  run([](Session& session) {
    const TensorSpec spec = in_round("w");
    std::optional<One> one;
    if (session.topology().rank == 0) one.emplace(session, spec, 2);
    session.begin_round(0, kRebuiltStream, session.topology().rank == 0 ? 1 : 2, 1);
    rebuild_now(session);
    if (session.topology().rank != 0) one.emplace(session, spec, 2);
    one->expect_sum();
  });
}

// The rebuild is not waited for; calls of this rank follow it at once.
TEST_P(Rebuild, AFailureIsMetAfterARebuildThatIsNotWaitedFor) {
  std::barrier failed(3);
  const auto body = [&](Session& session) {
    if (session.topology().size < 3) return;
    float x = 1;
    const auto submit = [&] { return session.submit(spec_of(CollectiveKind::kAllReduce, "", {1}), &x, &x); };
    std::shared_ptr<Work> first;
    if (session.topology().rank != 2) {
      first = submit();
      EXPECT_THAT(thrown_by([&] { outcome_of(session, first); }), HasSubstr("not by rank 2"));
    }
    failed.arrive_and_wait();
    const auto rebuilt = session.rebuild();
    if (session.topology().rank == 2) {
      EXPECT_THAT(thrown_by([&] { outcome_of(session, submit()); }), HasSubstr("not by rank 2"));
    }
    outcome_of(session, rebuilt);
    outcome_of(session, submit());
  };
  run(body, std::chrono::milliseconds(300));
}

// Tensors and rebuilds in an order of its own on each rank; works of several epochs are in flight at once.
TEST_P(Rebuild, AnyOrderOfSubmissionsIsRight) {
  run([](Session& session) {
    constexpr int kTensors = 60, kRebuilds = 12;
    std::mt19937 random(static_cast<unsigned>(session.topology().rank) + 7);
    std::vector<int> program(kTensors + kRebuilds);
    std::iota(program.begin(), program.end(), 0);
    std::ranges::shuffle(program, random);
    std::vector<std::unique_ptr<One>> tensors;
    std::vector<std::shared_ptr<Work>> rebuilds;
    for (const int action : program) {
      if (action >= kTensors) {
        rebuilds.push_back(session.rebuild());
      } else {
        tensors.push_back(std::make_unique<One>(session, sum_spec("t" + std::to_string(action)), 0.5F));
      }
      const auto until = Clock::now() + std::chrono::microseconds(random() % 500);
      while (Clock::now() < until) std::this_thread::yield();
    }
    for (const auto& tensor : tensors) tensor->expect_sum();
    for (const auto& work : rebuilds) outcome_of(session, work);
    EXPECT_EQ(session.topology().epoch, static_cast<std::uint32_t>(kRebuilds));
  });
}

TEST_P(Rebuild, ARankThatLeftFailsItOnTheOthers) {
  const auto [wire, size] = GetParam();
  if (size < 3) return;
  const std::string addr = test::free_address();
  std::barrier failed(2);  // rank 0 leaves last
  std::vector<std::function<void()>> ranks;
  for (int rank = 0; rank < 3; ++rank) {
    ranks.push_back([&, rank, wire = wire] {
      Config config = test::config_of(rank, 3, addr);
      config.transport = wire == test::Wire::kShm ? "shm" : "tcp";
      Session session(config);
      if (rank == 2) return;
      EXPECT_THAT(thrown_by([&] { rebuild_now(session); }), HasSubstr("rank 2"));
      failed.arrive_and_wait();
    });
  }
  for (const auto& error : test::run_threads(ranks)) EXPECT_EQ(test::message_of(error), "");
}

// An operation stops rank 1 in a collective that the rebuild follows. The engine of rank 0 waits for its lane.
TEST(RebuildEnds, AtTheDeadlineIfARankStopsInACollectiveBeforeIt) {
  std::vector<Links> links = connect_in_process(2);
  std::latch ended(1);
  const auto run = [&](int rank) {
    Config config;
    config.rank = config.local_rank = rank;
    config.size = config.local_size = 2;
    config.beat = std::chrono::milliseconds(100);
    config.deadline = std::chrono::milliseconds(2'500);  // longer than a turn of the engine that is no pause
    Session session(config, std::move(links[static_cast<std::size_t>(rank)]), [](std::uint32_t) { return Links(); });
    session.register_op({"stop", false, [&ended, rank](std::byte*, const std::byte*, std::uint64_t, DType) {
                           if (rank == 1) ended.wait();
                           return 0;
                         }});
    TensorSpec stopped = float_spec("stopped", 1);
    stopped.op = ReduceOp::kCustom;
    stopped.custom_op = "stop";
    float x = 1;
    const std::vector works = {session.submit(stopped, &x, &x),
                               session.submit(spec_of(CollectiveKind::kBarrier, "next", {}), nullptr, nullptr)};
    const auto rebuilt = session.rebuild();
    if (rank == 0) {
      EXPECT_THAT(thrown_by([&] { outcome_of(session, rebuilt); }), HasSubstr("rank 1"));
      ended.count_down();
    }
    ended.wait();
    EXPECT_NE(thrown_by([&] { outcome_of(session, rebuilt); }), "");
  };
  for (const auto& error : test::run_threads({[&] { run(0); }, [&] { run(1); }}))
    EXPECT_EQ(test::message_of(error), "");
}

TEST(RebuildRefused, WhereTheRanksCannotConnectAgain) {
  const auto thrown = run_world(2, [](Session& session) {
    EXPECT_THAT(thrown_by([&] { session.rebuild(); }), HasSubstr("cannot connect again"));
  });
  EXPECT_THAT(thrown, Each(""));
}

}  // namespace
}  // namespace horo
