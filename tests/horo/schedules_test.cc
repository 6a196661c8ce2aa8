// Schedules of late streams, one per seed of the fake of CUDA: whatever order its streams take, the bits are the
// host's. HORO_FAKE_CUDA_SEEDS=1:10000 runs so many seeds from the first number on; tools/gpu_proof schedules does it.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

#include "tests/effort.h"
#include "tests/horo/device_calls.h"

namespace horo {
namespace {

using testing::Each;

constexpr int kScheduleRanks = 3;
constexpr std::size_t kScheduleTensors = 6;

struct SeedRange {
  std::uint64_t first = 1, count = test::effort(25);
};

SeedRange seeds_to_run() {
  const char* const text = std::getenv("HORO_FAKE_CUDA_SEEDS");
  if (text == nullptr) return {};
  char* end = nullptr;
  const std::uint64_t first = std::strtoull(text, &end, 10);
  return {first, *end == ':' ? std::strtoull(end + 1, nullptr, 10) : 1};
}

// What a rank submits for each seed, from two streams that write the values late: gradients of the world in buckets,
// and a tensor of the set of the first two ranks, before or behind them.
class LateScript {
 public:
  explicit LateScript(Session& session) : session_(session), rank_(session.topology().rank) {
    pair_ = static_cast<std::uint32_t>(outcome_of(session, session.add_set({0, 1}, "pair")).counts.at(0));
    for (std::size_t i = 0; i < kScheduleTensors; ++i) {
      const bool is_of_pair = i + 1 == kScheduleTensors;
      if (is_of_pair && rank_ == 2) continue;
      TensorSpec spec = float_spec("tensor " + std::to_string(i), 10 + 300 * static_cast<std::int64_t>(i));
      spec.set = is_of_pair ? pair_ : 0;
      calls_.push_back({spec, {}, 0, {}, true});
      memories_.push_back(std::make_unique<DeviceMemory>(streams_[i % 2], spec.bytes()));
    }
  }

  void run(std::uint64_t seed) {
    meet_at(seed);
    std::vector<std::size_t> order(calls_.size());
    for (std::size_t i = 0; i < order.size(); ++i) order[i] = (i + (rank_ == 0 ? 1 : 0)) % order.size();
    std::vector<std::shared_ptr<Work>> works;
    for (const std::size_t i : order) works.push_back(submit(i, seed));
    for (const CudaStream stream : streams_) {
      EXPECT_TRUE(session_.wait_stream(works, rank_, stream, TimePoint::max()));
    }
    for (std::size_t i = 0; i < calls_.size(); ++i) {
      EXPECT_EQ(memories_[i]->read(), on_host(session_, calls_[i])) << "seed " << seed << ", tensor " << i;
    }
  }

 private:
  // One rank reseeds the streams of all, which have nothing to do.
  void meet_at(std::uint64_t seed) {
    session_.run(spec_of(CollectiveKind::kBarrier, "the last seed ends", {}), nullptr, nullptr);
    if (rank_ == 0) from_fake<decltype(fake_cuda_reseed)>("fake_cuda_reseed")(seed);
    session_.run(spec_of(CollectiveKind::kBarrier, "a seed begins", {}), nullptr, nullptr);
  }

  std::shared_ptr<Work> submit(std::size_t i, std::uint64_t seed) {
    Call& call = calls_[i];
    call.in = bytes_of_floats(call.spec.elements(), 100 * seed + 10 * i + static_cast<std::uint64_t>(rank_));
    memories_[i]->write(call.in);
    TensorSpec spec = call.spec;
    spec.device = DeviceType::kCuda;
    Submission submission{0, memories_[i]->data(), memories_[i]->data()};
    submission.ready = session_.record(rank_, streams_[i % 2]);
    return session_.submit(spec, submission);
  }

  Session& session_;
  const int rank_;
  std::uint32_t pair_ = 0;
  const std::array<CudaStream, 2> streams_{make_stream(), make_stream()};
  std::vector<Call> calls_;
  std::vector<std::unique_ptr<DeviceMemory>> memories_;
};

void run_seeds(const Config& config) {
  const SeedRange seeds = seeds_to_run();
  const auto body = [&](Session& session) {
    LateScript script(session);
    for (std::uint64_t seed = seeds.first; seed < seeds.first + seeds.count; ++seed) script.run(seed);
    meet(session);
  };
  EXPECT_THAT(run_world_until(Clock::now() + kTestDeadline + std::chrono::milliseconds(200 * seeds.count),
                              connect_in_process(kScheduleRanks), body, config),
              Each(""));
}

TEST(Schedules, OfEverySeedHaveTheBitsOfTheHostByNccl) {
  const auto before = nccl_counts();
  run_seeds(on_fake_nccl());
  EXPECT_EQ(nccl_counts().cycles, before.cycles) << "collectives of two communicators in opposite orders";
}

TEST(Schedules, OfEverySeedHaveTheBitsOfTheHostByWayOfIt) {
  run_seeds(on_fake());
}

}  // namespace
}  // namespace horo
