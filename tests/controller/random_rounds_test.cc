// Random training programs with rounds on random networks: in some steps one rank numbers its round unlike the others,
// in some ranks give their round up after a part of it. Each submission ends in the one right way on every rank.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>

#include "tests/controller/simulator.h"
#include "tests/effort.h"

namespace horo {
namespace {

constexpr RoundStream kStreams[] = {{0, 5}, {0, 6}};

// How often a tensor must end on a rank.
struct RightEnds {
  int runs = 0;  // releases and skips
  int failures = 0;
};
struct RoundsScenario {
  std::vector<Program> programs;
  std::vector<std::map<std::string, RightEnds>> ends;  // by rank
};

class RoundsWriter {
 public:
  explicit RoundsWriter(std::uint64_t seed) : random_(seed) {}

  RoundsScenario write() {
    scenario_.programs.resize(static_cast<std::size_t>(pick(2, 5)));
    scenario_.ends.resize(scenario_.programs.size());
    for (std::vector<TensorSpec>& half : halves_) {
      for (int i = pick(1, 8); i > 0; --i) half.push_back(tensor());
    }
    const bool overlaps = chance(30);
    for (int round = pick(8, 24); round > 0; --round) {
      write_round(halves_[overlaps ? static_cast<std::size_t>(round % 2) : 0]);
      if (!overlaps || round % 2 == 0 || round == 1) add_to_all(WaitCall{});
      if (!chance(10)) add_to_all(EndStepCall{});
    }
    return std::move(scenario_);
  }

 private:
  int pick(int least, int most) { return std::uniform_int_distribution<int>(least, most)(random_); }
  bool chance(int percent) { return pick(1, 100) <= percent; }

  TensorSpec tensor() {
    TensorSpec spec = gradient("t" + std::to_string(serial_++), {pick(0, 5), 64});
    if (!chance(15)) spec.round_stream = kStreams[chance(25) ? 1 : 0].number;
    return spec;
  }

  void add_to_all(const Call& call) {
    for (Program& program : scenario_.programs) program.push_back(call);
  }

  void write_round(const std::vector<TensorSpec>& tensors) {
    ++step_;
    const int kind = pick(1, 10);
    const std::size_t ranks = scenario_.programs.size();
    const std::size_t odd = kind == 1 ? random_() % ranks : ranks;  // the rank that numbers its round differently
    std::map<std::string, std::size_t> submitted;
    std::vector<std::vector<TensorSpec>> parts;
    for (std::size_t rank = 0; rank < ranks; ++rank) {
      parts.push_back(write_part(rank, tensors, rank == odd ? RoundNumber{step_ - 1, 2} : RoundNumber{step_, 1},
                                 kind >= 2 && kind <= 4 && chance(40)));
      for (const TensorSpec& spec : parts.back()) ++submitted[spec.name];
    }
    for (std::size_t rank = 0; rank < ranks; ++rank) {
      for (const TensorSpec& spec : parts[rank]) {
        const bool runs = submitted[spec.name] == ranks && (odd == ranks || spec.round_stream == 0);
        RightEnds& ends = scenario_.ends[rank][spec.name];
        ++(runs ? ends.runs : ends.failures);
      }
    }
  }

  // The tensors that the rank submits.
  std::vector<TensorSpec> write_part(std::size_t rank, std::vector<TensorSpec> tensors, RoundNumber number,
                                     bool gives_up) {
    Program& program = scenario_.programs[rank];
    std::shuffle(tensors.begin(), tensors.end(), random_);
    for (const RoundStream& stream : kStreams) program.emplace_back(BeginRoundCall{stream, number});
    if (gives_up) {
      const auto most = static_cast<std::size_t>(pick(0, static_cast<int>(tensors.size())));
      std::size_t in_round = 0;
      std::erase_if(tensors, [&](const TensorSpec& spec) { return spec.round_stream != 0 && in_round++ >= most; });
    }
    for (const TensorSpec& spec : tensors) {
      program.emplace_back(SubmitCall{spec, chance(10)});
      if (chance(5)) program.emplace_back(PauseCall{std::chrono::microseconds(pick(1, 2000))});
    }
    for (const RoundStream& stream : kStreams) {
      if (gives_up) program.emplace_back(FailRoundCall{stream, "no"});
    }
    return tensors;
  }

  std::mt19937_64 random_;
  std::vector<TensorSpec> halves_[2];
  int serial_ = 0;
  std::uint64_t step_ = 0;
  RoundsScenario scenario_;
};

void expect_right_ends(Simulation& world, const RoundsScenario& scenario, int* failures) {
  ASSERT_EQ(world.stuck(), "");
  ASSERT_LT(world.duration(), std::chrono::seconds(10)) << "it took a stall to go on";
  for (std::size_t rank = 0; rank < scenario.programs.size(); ++rank) {
    SCOPED_TRACE("rank " + std::to_string(rank));
    EngineModel& engine = world.engine(static_cast<int>(rank));
    ASSERT_TRUE(engine.idle()) << engine.in_flight();
    ASSERT_EQ(engine.stream(), world.engine(0).stream());
    std::map<std::string, int> failed;
    for (const TensorFailure& failure : engine.failures()) ++failed[failure.name];
    for (const auto& [name, ends] : scenario.ends[rank]) {
      ASSERT_EQ(engine.times(name), ends.runs) << name;
      ASSERT_EQ(failed[name], ends.failures) << name;
    }
    *failures += static_cast<int>(engine.failures().size());
  }
}

TEST(RandomRounds, EverySubmissionEndsInTheRightWay) {
  int known = 0;
  int failures = 0;
  for (std::uint64_t seed = 1; seed <= test::effort(3000U) && !testing::Test::HasFatalFailure(); ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    const RoundsScenario scenario = RoundsWriter(seed).write();
    SimulationConfig config = world_of(static_cast<int>(scenario.programs.size()), seed);
    config.coordinator.bucket_bytes = seed % 4 == 0 ? 0 : 4096 * (seed % 4);
    Simulation world(config, scenario.programs);
    world.run();
    expect_right_ends(world, scenario, &failures);
    for (const Seen& seen : world.engine(0).stream()) known += seen.known ? 1 : 0;
  }
  EXPECT_GT(known, test::effort(500)) << "the programs hardly ever come to known plans, and so show little";
  EXPECT_GT(failures, test::effort(1000));
}

}  // namespace
}  // namespace horo
