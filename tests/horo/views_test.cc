// Gradients in a bucket: contiguous in memory, in the order of their known plan.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <random>

#include "tests/effort.h"
#include "tests/horo/worlds.h"
#include "tests/ring/run_ranks.h"

namespace horo {
namespace {

using testing::HasSubstr;

constexpr std::size_t kViewSizes[] = {1000, 0, 17, 5000, 1};
constexpr std::size_t kTensors = std::size(kViewSizes);
constexpr int kPatience = 500;  // steps after which plans must be known

// The gradients of one optimizer.
class Steps {
 public:
  Steps(Session& session, const std::string& name) : session_(session) {
    for (std::size_t i = 0; i < kTensors; ++i) {
      TensorSpec spec = float_spec(name + std::to_string(i), static_cast<std::int64_t>(kViewSizes[i]));
      spec.stepwise = true;
      spec.op = ReduceOp::kAverage;
      keys_.push_back(session.declare(spec));
      own_[i].resize(kViewSizes[i] + 1);
      at_[i] = own_[i].data();
    }
  }

  // one_by_one: waits for each tensor before it submits the next one, which breaks their plan.
  void step(bool one_by_one = false) {
    std::vector<std::shared_ptr<Work>> works;
    for (std::size_t i = 0; i < kTensors; ++i) {
      for (std::size_t e = 0; e < kViewSizes[i]; ++e) at_[i][e] = values_(random_);
      works.push_back(session_.submit({keys_[i], at_[i], at_[i]}));
      if (one_by_one) outcome_of(session_, works.back());
    }
    session_.wait(works, TimePoint::max());
    for (const auto& work : works) work->outcome();
    session_.step_end(0);
    places_ = session_.places(works);
  }

  std::size_t known() const {
    return static_cast<std::size_t>(
        std::count_if(places_.begin(), places_.end(), [](const BucketPlace& place) { return place.plan != 0; }));
  }

  // Moves the gradients of plans into buckets. Returns the number of gradients in plans.
  std::size_t move_into_buckets() {
    std::size_t moved = 0;
    for (std::size_t i = 0; i < kTensors; ++i) {
      const BucketPlace& place = places_.at(i);
      if (place.plan == 0) continue;
      Allocation& bucket = buckets_[place.plan];
      if (!bucket.data) bucket = session_.allocate(0, place.bytes);
      at_[i] = reinterpret_cast<float*>(bucket.data.get() + place.offset);
      ++moved;
    }
    return moved;
  }

  std::vector<float> all() const {
    std::vector<float> all;
    for (std::size_t i = 0; i < kTensors; ++i) all.insert(all.end(), at_[i], at_[i] + kViewSizes[i]);
    return all;
  }

  std::map<PlanId, Allocation> take_buckets() { return std::move(buckets_); }

 private:
  Session& session_;
  std::mt19937 random_{static_cast<unsigned>(session_.topology().rank)};
  std::normal_distribution<float> values_;
  std::vector<Key> keys_;
  std::vector<float> own_[kTensors];
  float* at_[kTensors];
  std::vector<BucketPlace> places_;
  std::map<PlanId, Allocation> buckets_;
};

std::string packed_bytes(const Session& session) {
  const std::string json = session.counters().json();
  const std::size_t at = json.find("\"packed_bytes\"");
  return json.substr(at, json.find("\"control\"", at) - at);
}

// Runs steps of both optimizers until all plans are known on all ranks.
void know(Session& session, Steps& one, Steps& other) {
  TensorSpec spec = float_spec("known", 1);
  spec.op = ReduceOp::kMin;
  for (int i = 0; i < kPatience; ++i) {
    one.step(), other.step();
    const float mine = one.known() + other.known() == 2 * kTensors ? 1 : 0;
    float all = 0;
    session.run(spec, &mine, &all);
    if (all == 1) return;
  }
  FAIL() << "no plans";
}

class Views : public testing::TestWithParam<std::pair<test::Wire, int>> {
 protected:
  // Runs the body on all ranks, none of which may throw.
  void run(const std::function<void(Session&)>& body) {
    const auto [wire, size] = GetParam();
    const std::string addr = test::free_address();
    std::vector<Links> in_process;
    if (wire == test::Wire::kInProcess) in_process = connect_in_process(size);
    std::vector<std::function<void()>> ranks;
    for (int rank = 0; rank < size; ++rank) {
      ranks.push_back([&, rank, wire = wire, size = size] {
        Config config = test::config_of(rank, size, addr);
        if (wire == test::Wire::kShm) config.transport = "shm";
        if (wire == test::Wire::kInProcess) {
          Session session(config, std::move(in_process[static_cast<std::size_t>(rank)]));
          return body(session);
        }
        Session session(config);
        body(session);
      });
    }
    for (const auto& error : test::run_threads(ranks)) EXPECT_EQ(test::message_of(error), "");
  }
};
using Where = std::pair<test::Wire, int>;
INSTANTIATE_TEST_SUITE_P(Wires, Views,
                         testing::Values(Where(test::Wire::kInProcess, 3), Where(test::Wire::kTcp, 2),
                                         Where(test::Wire::kShm, 2), Where(test::Wire::kShm, 3)),
                         [](const auto& info) {
                           return std::string(test::name_of(info.param.first)) + std::to_string(info.param.second);
                         });

TEST_P(Views, ContiguousTensorsAreNotCopiedAndHaveTheSameBits) {
  run([](Session& session) {
    Steps packed(session, "packed"), living(session, "living");
    know(session, packed, living);
    ASSERT_EQ(living.move_into_buckets(), kTensors);
    for (int i = 0; i < 5; ++i) {
      packed.step();
      const std::string before = packed_bytes(session);
      living.step();
      EXPECT_EQ(packed_bytes(session), before);
      EXPECT_EQ(living.all(), packed.all());
    }
    meet(session);
  });
}

TEST_P(Views, OneRankMayPackWhileOthersReduceInPlace) {
  run([](Session& session) {
    Steps packed(session, "packed"), mixed(session, "mixed");
    know(session, packed, mixed);
    if (session.topology().rank == 1) mixed.move_into_buckets();
    for (int i = 0; i < 5; ++i) {
      packed.step(), mixed.step();
      EXPECT_EQ(mixed.all(), packed.all());
    }
    meet(session);
  });
}

TEST_P(Views, ADissolvedPlanDoesNotChangeItsMemory) {
  run([](Session& session) {
    Steps packed(session, "packed"), living(session, "living");
    know(session, packed, living);
    EXPECT_EQ(living.move_into_buckets(), kTensors);
    const std::uint64_t version = session.plans_version();
    packed.step(), living.step(true);
    EXPECT_EQ(living.all(), packed.all());
    EXPECT_GT(session.plans_version(), version);
    know(session, packed, living);
    EXPECT_EQ(living.move_into_buckets(), kTensors);
    packed.step(), living.step();
    EXPECT_EQ(living.all(), packed.all());
    meet(session);
  });
}

TEST_P(Views, MemoryOutlivesTheSession) {
  run([](Session& session) {
    Allocation memory;
    {
      Allocation also = session.allocate(0, 3 << 20);
      memory = session.allocate(0, 5 << 20);
    }
    std::memset(memory.data.get(), 1, memory.bytes);
    meet(session);
    session.shutdown();
    EXPECT_EQ(memory.data.get()[memory.bytes - 1], std::byte{1});
    EXPECT_THROW(session.allocate(0, 1), ShutDown);
  });
}

TEST(BucketMemory, AFailedAllocationIsReported) {
  Session session{Config{}};
  EXPECT_THAT(thrown_by([&] { session.allocate(7, 1); }), HasSubstr("7"));
  EXPECT_THAT(thrown_by([&] { session.allocate(0, SIZE_MAX); }), HasSubstr("expected at most"));
  if (!test::kSanitized) {  // operator new of the sanitizers ends the process
    EXPECT_THAT(thrown_by([&] { session.allocate(0, std::size_t{1} << 47); }), HasSubstr("out of memory"));
  }
  EXPECT_NE(session.allocate(0, 0).data, nullptr);
}

}  // namespace
}  // namespace horo
