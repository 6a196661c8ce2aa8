// Many ranks and tensors in random order: the same stream on all ranks, and only bits of plans in the steady state.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>

#include "tests/controller/simulator.h"
#include "tests/effort.h"

namespace horo {
namespace {

std::vector<TensorSpec> gradients(int count) {
  std::vector<TensorSpec> specs;
  for (int i = 0; i < count; ++i) specs.push_back(gradient("layer" + std::to_string(i) + ".weight", {i % 7 + 1, 64}));
  return specs;
}

// Every rank submits all tensors in each step, in an order of its own.
std::vector<Program> training(int size, std::vector<TensorSpec> tensors, int steps) {
  std::mt19937_64 random(42);
  std::vector<Program> programs(static_cast<std::size_t>(size));
  for (Program& program : programs) {
    for (int step = 0; step < steps; ++step) {
      std::shuffle(tensors.begin(), tensors.end(), random);
      for (const TensorSpec& spec : tensors) program.emplace_back(SubmitCall{spec});
      program.emplace_back(WaitCall{});
      program.emplace_back(EndStepCall{});
    }
  }
  return programs;
}

void expect_one_stream(Simulation& world, int size) {
  for (int rank = 1; rank < size; ++rank) ASSERT_EQ(world.engine(rank).stream(), world.engine(0).stream()) << rank;
}

TEST(Simulation, EveryRankHasTheSameStreamWithEachTensorOncePerStep) {
  const auto tensors = gradients(200);
  Simulation world(world_of(64), training(64, tensors, 6));
  world.run();
  ASSERT_EQ(world.stuck(), "");
  expect_one_stream(world, 64);
  for (const TensorSpec& spec : tensors) EXPECT_EQ(world.engine(5).times(spec.name), 6) << spec.name;
  EXPECT_TRUE(world.engine(5).failures().empty());
}

TEST(Simulation, ReleaseNumbersRiseFromOneWithoutGaps) {
  Simulation world(world_of(8), training(8, gradients(50), 5));
  world.run();
  std::uint64_t last = 0;
  for (const Seen& seen : world.engine(3).stream()) {
    EXPECT_EQ(seen.number, ++last);
  }
  EXPECT_GT(last, 0U);
}

TEST(Simulation, NamesAreSentInTheFirstStepOnly) {
  Simulation world(world_of(64), training(64, gradients(200), 6));
  world.run();
  ASSERT_EQ(world.stuck(), "");
  for (const SentMessage& message : world.sent()) {
    ASSERT_TRUE(message.step == 0 || !message.send.has_names) << "step " << message.step << " from " << message.from;
  }
}

TEST(Simulation, TheSteadyStateHasKnownPlansOnly) {
  constexpr int kRanks = 64;
  constexpr int kSteps = 8;
  Simulation world(world_of(kRanks), training(kRanks, gradients(200), kSteps));
  world.run();
  std::map<std::uint64_t, int> plans;  // by hash of their names
  const auto& stream = world.engine(1).stream();
  std::for_each(stream.end() - 10, stream.end(), [](const Seen& seen) { EXPECT_TRUE(seen.known); });
  for (const Seen& seen : stream) plans[seen.known ? seen.key_hash : 0] += 1;
  const int known = static_cast<int>(plans.size()) - 1;
  std::map<int, int> up, down;
  for (const SentMessage& message : world.sent()) ++(message.from == 0 ? down : up)[message.step];
  for (int step = 4; step < kSteps; ++step) {
    EXPECT_LE(up[step], kRanks * known);
    EXPECT_LE(down[step], kRanks * known);
  }
}

TEST(Simulation, ABucketOfAKnownPlanStaysTheSameInEveryStep) {
  Simulation world(world_of(16), training(16, gradients(100), 8));
  world.run();
  std::map<std::vector<std::string>, int> known;
  for (const Seen& seen : world.engine(2).stream()) known[seen.names] += seen.known ? 1 : 0;
  std::erase_if(known, [](const auto& entry) { return entry.second == 0; });
  for (const auto& [names, times] : known) EXPECT_GE(times, 4) << names.front();
}

TEST(Simulation, AWorldOfOneReleasesAtEveryFlush) {
  Simulation world(world_of(1), training(1, gradients(20), 5));
  world.run();
  EXPECT_EQ(world.stuck(), "");
  EXPECT_EQ(world.engine(0).times("layer3.weight"), 5);
  EXPECT_TRUE(world.engine(0).stream().back().known);
  EXPECT_TRUE(world.sent().empty());
}

TEST(Simulation, AThousandTensorsOnSixtyFourRanksBecomeReady) {
  Simulation world(world_of(64), training(64, gradients(test::effort(1000)), 5));
  world.run();
  EXPECT_EQ(world.stuck(), "");
  expect_one_stream(world, 64);
  EXPECT_TRUE(world.engine(0).stream().back().known);
}

}  // namespace
}  // namespace horo
