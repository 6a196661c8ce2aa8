// Process sets, messages between two ranks, joins and units through sessions.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <future>

#include "tests/horo/worlds.h"

namespace horo {
namespace {

using testing::Each;
using testing::HasSubstr;

using enum CollectiveKind;

std::uint32_t add_set(Session& session, const std::vector<int>& ranks, const std::string& name = "") {
  const auto work = session.add_set(ranks, name);
  return static_cast<std::uint32_t>(outcome_of(session, work).counts.at(0));
}

void remove_set(Session& session, std::uint32_t set) {
  outcome_of(session, session.remove_set(set));
}

// The sum over the members of the set of 10 to the power of their world ranks.
float sum_in(Session& session, std::uint32_t set, const std::string& name = "x") {
  TensorSpec spec = float_spec(name, 3);
  spec.set = set;
  std::vector<float> x(3, 1.0f);
  for (int i = 0; i < session.topology().rank; ++i) x[0] *= 10.0f;
  session.run(spec, x.data(), x.data());
  return x[0];
}

TEST(Sets, EachSetSumsOnlyItsMembers) {
  const auto thrown = run_world(4, [](Session& session) {
    const int rank = session.topology().rank;
    const std::uint32_t evens = add_set(session, {0, 2}, "evens");
    const std::uint32_t late = add_set(session, {1, 2, 3});
    EXPECT_EQ(evens, 1u);
    EXPECT_EQ(session.set_info(late).name, "process set 2");
    if (rank % 2 == 0) {
      EXPECT_EQ(sum_in(session, evens), 101.0f);
    }
    if (rank > 0) {
      EXPECT_EQ(sum_in(session, late), 1110.0f);
    }
    EXPECT_EQ(sum_in(session, 0), 1111.0f);
    EXPECT_EQ(session.set_info(late).rank, rank - 1);
  });
  EXPECT_THAT(thrown, Each(""));
}

TEST(Sets, RootsAreRanksInsideTheSet) {
  const auto thrown = run_world(3, [](Session& session) {
    const int rank = session.topology().rank;
    const std::uint32_t set = add_set(session, {0, 2});
    if (rank == 1) return;
    TensorSpec spec = spec_of(kBroadcast, "x", {1});
    spec.set = set;
    spec.root = 1;
    float x = static_cast<float>(rank);
    session.run(spec, &x, &x);
    EXPECT_EQ(x, 2.0f);
  });
  EXPECT_THAT(thrown, Each(""));
}

TEST(Sets, AStalledSetDoesNotDelayOthers) {
  const auto thrown = run_world(3, [](Session& session) {
    const int rank = session.topology().rank;
    const std::uint32_t stuck = add_set(session, {0, 1});
    const std::uint32_t free = add_set(session, {0, 2});
    std::vector<float> x(4, 1.0f);
    TensorSpec spec = float_spec("late", 4);
    spec.set = stuck;
    std::shared_ptr<Work> work;
    if (rank == 0) work = session.submit(spec, x.data(), x.data());
    for (int i = 0; i < 20 && rank != 1; ++i) EXPECT_EQ(sum_in(session, free), 101.0f);
    EXPECT_EQ(sum_in(session, 0), 111.0f);
    if (rank == 1) work = session.submit(spec, x.data(), x.data());
    if (rank == 2) return;
    outcome_of(session, work);
    EXPECT_THAT(x, Each(2.0f));
  });
  EXPECT_THAT(thrown, Each(""));
}

// An operation blocks the lane of the world until another set has completed a collective: if lanes waited for each
// other, the test would not end.
TEST(Sets, ABusyLaneDoesNotDelayOthers) {
  const auto thrown = run_world(2, [](Session& session) {
    const std::uint32_t alone = add_set(session, {0});
    struct Gate {
      std::promise<void> entered, opened;
    };
    const auto gate = std::make_shared<Gate>();
    session.register_op({"wait", false, [gate](std::byte*, const std::byte*, std::uint64_t, DType) {
                           gate->entered.set_value();
                           gate->opened.get_future().wait();
                           return 0;
                         }});
    TensorSpec spec = float_spec("busy", 1);
    spec.op = ReduceOp::kCustom;
    spec.custom_op = "wait";
    float x = 1;
    const auto busy = session.submit(spec, &x, &x);
    if (session.topology().rank == 0) {
      gate->entered.get_future().wait();
      EXPECT_EQ(sum_in(session, alone), 1.0f);
    }
    gate->opened.set_value();
    outcome_of(session, busy);
  });
  EXPECT_THAT(thrown, Each(""));
}

TEST(Sets, AnAverageDividesByTheSizeOfItsSet) {
  const auto thrown = run_world(3, [](Session& session) {
    const std::uint32_t set = add_set(session, {1, 2});
    TensorSpec spec = float_spec("x", 1);
    spec.set = set;
    spec.op = ReduceOp::kAverage;
    float x = static_cast<float>(session.topology().rank);
    if (session.topology().rank > 0) session.run(spec, &x, &x);
    EXPECT_EQ(x, session.topology().rank > 0 ? 1.5f : 0.0f);
    meet(session);
  });
  EXPECT_THAT(thrown, Each(""));
}

TEST(Sets, ACallOfARankThatIsNoMemberIsRefused) {
  const auto thrown = run_world(2, [](Session& session) {
    const std::uint32_t set = add_set(session, {1}, "one");
    if (session.topology().rank == 1) return;
    const std::string text = "rank 0 is not in process set 'one', which has the ranks 1";
    EXPECT_EQ(thrown_by([&] { sum_in(session, set); }), text);
    EXPECT_EQ(thrown_by([&] { session.step_end(set); }), text);
    EXPECT_EQ(thrown_by([&] { session.join(set); }), text);
  });
  EXPECT_THAT(thrown, Each(""));
}

TEST(Sets, ARemovedSetIsRefusedAndItsNumberNotReused) {
  const auto thrown = run_world(3, [](Session& session) {
    const std::uint32_t first = add_set(session, {0, 1}, "pair");
    EXPECT_THAT(thrown_by([&] { session.add_set({0, 1}); }), HasSubstr("process set 'pair' has the same ranks: 0, 1"));
    remove_set(session, first);
    EXPECT_EQ(thrown_by([&] { sum_in(session, first); }), "process set 1 was removed");
    const std::uint32_t second = add_set(session, {0, 1}, "pair");
    EXPECT_EQ(second, 2u);
    if (session.topology().rank < 2) {
      EXPECT_EQ(sum_in(session, second), 11.0f);
    }
  });
  EXPECT_THAT(thrown, Each(""));
}

TEST(Sets, PendingTensorsOfARemovedSetFailWithItsName) {
  const auto thrown = run_world(3, [](Session& session) {
    const int rank = session.topology().rank;
    const std::uint32_t set = add_set(session, {0, 1}, "pair");
    float x = 1;
    TensorSpec spec = float_spec("lonely", 1);
    spec.set = set;
    std::shared_ptr<Work> work;
    if (rank == 0) work = session.submit(spec, &x, &x);
    sum_in(session, 0);
    remove_set(session, set);
    if (rank != 0) return;
    const std::string text = thrown_by([&] { outcome_of(session, work); });
    EXPECT_THAT(text, HasSubstr("'lonely'"));
    EXPECT_THAT(text, HasSubstr("'pair'"));
  });
  EXPECT_THAT(thrown, Each(""));
}

TEST(Sets, DifferingSetsFailOnAllRanks) {
  const auto thrown = run_world(3, [](Session& session) {
    const int rank = session.topology().rank;
    const auto work = session.add_set(rank == 2 ? std::vector<int>{0, 1} : std::vector<int>{0, 2});
    outcome_of(session, work);
  });
  EXPECT_THAT(thrown, Each(HasSubstr("ranks [0, 2] on ranks 0, 1; ranks [0, 1] on rank 2")));
}

TEST(Sets, SetsThatDifferInShrinksFailOnAllRanks) {
  const auto thrown = run_world(3, [](Session& session) {
    outcome_of(session, session.add_set({0, 2}, "", session.topology().rank == 1));
  });
  EXPECT_THAT(thrown, Each(HasSubstr("shrinks=False on ranks 0, 2; shrinks=True on rank 1")));
}

TEST(Sets, ASetThatShrinksIsLikeAnyOtherInAStaticJob) {
  const auto thrown = run_world(3, [](Session& session) {
    const auto set = static_cast<std::uint32_t>(outcome_of(session, session.add_set({0, 2}, "", true)).counts[0]);
    EXPECT_TRUE(session.set_info(set).shrinks);
    if (session.topology().rank != 1) sum_in(session, set);
  });
  EXPECT_THAT(thrown, Each(""));
}

TEST(Sets, TheirNumberIsLimited) {
  Config config;
  config.max_process_sets = 1;
  const auto thrown = run_world(
      2,
      [](Session& session) {
        add_set(session, {0});
        EXPECT_THAT(thrown_by([&] { session.add_set({1}); }), HasSubstr("HORO_MAX_PROCESS_SETS"));
      },
      config);
  EXPECT_THAT(thrown, Each(""));
}

TEST(Sets, CountersNameThem) {
  const auto thrown = run_world(2, [](Session& session) {
    const std::uint32_t set = add_set(session, {0}, "me");
    if (session.topology().rank == 0) sum_in(session, set);
    const auto counted = session.counters().collectives(set, kAllReduce);
    EXPECT_EQ(counted.count, session.topology().rank == 0 ? 1u : 0u);
    if (session.topology().rank == 0) {
      EXPECT_THAT(session.counters().json(), HasSubstr("\"set_name\": \"me\""));
    }
  });
  EXPECT_THAT(thrown, Each(""));
}

}  // namespace
}  // namespace horo
