// Priorities in whole sessions: they change the order of collectives, but not the results.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <future>
#include <mutex>

#include "tests/horo/worlds.h"

namespace horo {
namespace {

using testing::Each;
using testing::ElementsAre;

// An operation whose first call waits, and that records the number of elements of each call.
class Gate {
 public:
  CustomOp op() {
    return {"gate", true, [this](std::byte*, const std::byte*, std::uint64_t count, DType) {
              {
                const std::lock_guard lock(mutex_);
                counts_.push_back(count);
              }
              opened_.wait();
              return 0;
            }};
  }
  void open() { open_.set_value(); }
  std::vector<std::uint64_t> counts() {
    const std::lock_guard lock(mutex_);
    return counts_;
  }

 private:
  std::promise<void> open_;
  std::shared_future<void> opened_ = open_.get_future().share();
  std::mutex mutex_;
  std::vector<std::uint64_t> counts_;
};

TensorSpec gated(std::int64_t elements, std::int32_t priority) {
  TensorSpec spec = float_spec("t" + std::to_string(elements), elements);
  spec.op = ReduceOp::kCustom;
  spec.custom_op = "gate";
  spec.priority = priority;
  return spec;
}

// Messages have their own lane, so a message arrives while the lane of the world is blocked.
void exchange_words(Session& session) {
  float x = 1;
  TensorSpec spec = spec_of(CollectiveKind::kSendRecv, "", {1});
  spec.peer = 1;
  const bool sends = session.topology().rank == 0;
  session.run(spec, sends ? &x : nullptr, sends ? nullptr : &x);
  spec.root = 1;
  spec.peer = 0;
  session.run(spec, sends ? nullptr : &x, sends ? &x : nullptr);
}

// While the first tensor runs, the others become ready in ascending order of size, which is that of their priorities.
std::vector<std::uint64_t> order_behind_a_gate(Session& session) {
  float x = 1;
  TensorSpec most = float_spec("heard of", 1);
  most.priority = 9;
  session.run(most, &x, &x);
  Gate gate;
  session.register_op(gate.op());
  std::vector<std::vector<float>> data(6, std::vector<float>(6, 1.0f));
  std::vector<std::shared_ptr<Work>> works;
  for (std::int32_t i = 1; i <= 5; ++i) {
    float* mine = data[static_cast<std::size_t>(i)].data();
    works.push_back(session.submit(gated(i, i), {0, mine, mine}));
    exchange_words(session);
  }
  gate.open();
  session.wait(works, TimePoint::max());
  for (const auto& work : works) work->outcome();
  meet(session);
  return gate.counts();
}

TEST(Priorities, MoreUrgentTensorsRunFirstOnAllRanks) {
  Config config;
  config.credit_bytes = 1;
  const auto thrown = run_world(
      2,
      [](Session& session) {
        std::vector<std::uint64_t> counts = order_behind_a_gate(session);
        counts.erase(std::unique(counts.begin(), counts.end()), counts.end());
        EXPECT_THAT(counts, ElementsAre(1, 5, 4, 3, 2));
      },
      config);
  EXPECT_THAT(thrown, Each(""));
}

// Random sizes and priorities, submitted in a different order on each rank. Returns the sums of each step.
std::vector<std::vector<float>> sums(Session& session, bool is_ranked) {
  std::vector<std::vector<float>> all;
  for (int step = 0; step < 6; ++step) {
    std::vector<std::shared_ptr<Work>> works;
    const std::size_t first = all.size();
    for (int i = 0; i < 12; ++i) {
      all.emplace_back(100 + 37 * i);
      for (float& x : all.back()) x = 0.1f * static_cast<float>((1 + session.topology().rank) * (1 + step + i));
    }
    for (int i = 0; i < 12; ++i) {
      TensorSpec spec = float_spec("g" + std::to_string(i), 100 + 37 * i);
      spec.stepwise = true;
      spec.priority = is_ranked ? i * 7 % 5 : 0;
      float* mine = all[first + static_cast<std::size_t>(i)].data();
      works.push_back(session.submit(spec, mine, mine));
    }
    session.wait(works, TimePoint::max());
    for (const auto& work : works) work->outcome();
    session.step_end(0);
  }
  meet(session);
  return all;
}

TEST(Priorities, DoNotChangeResults) {
  Config config;
  config.credit_bytes = 1 << 10;
  config.bucket_bytes = 2 << 10;
  const auto thrown = run_world(
      3, [](Session& session) { EXPECT_EQ(sums(session, true), sums(session, false)); }, config);
  EXPECT_THAT(thrown, Each(""));
}

TEST(Priorities, ThatDifferAreAMismatchWithBothValues) {
  const auto thrown = run_world(2, [](Session& session) {
    float x = 1;
    TensorSpec spec = float_spec("x", 1);
    spec.priority = session.topology().rank;
    const std::string text = thrown_by([&] { session.run(spec, &x, &x); });
    EXPECT_THAT(text, testing::HasSubstr("priority 0 on rank 0; priority 1 on rank 1"));
    meet(session);
  });
  EXPECT_THAT(thrown, Each(""));
}

TEST(Priorities, OfBarriersAndMessagesAreIgnored) {
  const auto thrown = run_world(2, [](Session& session) {
    const int rank = session.topology().rank;
    float x = 1;
    TensorSpec spec = spec_of(CollectiveKind::kSendRecv, "m", {1});
    spec.root = 0;
    spec.peer = 1;
    spec.priority = rank;
    session.run(spec, rank == 0 ? &x : nullptr, rank == 0 ? nullptr : &x);
    TensorSpec barrier = spec_of(CollectiveKind::kBarrier, "b", {});
    barrier.priority = rank;
    session.run(barrier, nullptr, nullptr);
  });
  EXPECT_THAT(thrown, Each(""));
}

// A rank aborts while tensors wait for their turn: every Work ends.
TEST(Priorities, WaitingTensorsFailWithTheEpoch) {
  Config config;
  config.credit_bytes = 1;
  const auto thrown = run_world(
      2,
      [](Session& session) {
        std::vector<std::vector<float>> data(40, std::vector<float>(64 << 10));
        std::vector<std::shared_ptr<Work>> works;
        for (int i = 0; i < 40; ++i) {
          TensorSpec spec = float_spec("t" + std::to_string(i), 64 << 10);
          spec.priority = -(i % 8);
          float* mine = data[static_cast<std::size_t>(i)].data();
          works.push_back(session.submit(spec, mine, mine));
        }
        if (session.topology().rank == 1) session.abort("on purpose");
        session.wait(works, TimePoint::max());  // on rank 1 too: until then its lane may read the data
        for (const auto& work : works) work->outcome();
      },
      config);
  for (const std::string& text : thrown) {
    EXPECT_TRUE(text.empty() || text.find("on purpose") != std::string::npos) << text;
  }
}

}  // namespace
}  // namespace horo
