// Random training programs on random networks: the callers of all ranks make the same steps, each in an order of its
// own. Every rank has the same stream, each submission ends once, and nothing waits at the end.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>

#include "tests/controller/simulator.h"
#include "tests/effort.h"

namespace horo {
namespace {

// The calls of all ranks, and how often each name must end in which way.
struct Scenario {
  std::vector<Program> programs;
  std::map<std::string, int> ends;  // releases and skips
  std::map<std::string, int> mismatches;
};

class Author {
 public:
  explicit Author(std::uint64_t seed) : random_(seed), is_ranked_(chance(50)) {}

  Scenario write() {
    scenario_.programs.resize(static_cast<std::size_t>(pick(1, 6)));
    for (int i = pick(1, 12); i > 0; --i) tensors_.push_back(tensor(i));
    for (int step = pick(2, 9); step > 0; --step) {
      for (int phase = pick(1, 2); phase > 0; --phase) write_phase();
      if (!chance(10)) add_to_all(EndStepCall{});
    }
    return std::move(scenario_);
  }

 private:
  int pick(int least, int most) { return std::uniform_int_distribution<int>(least, most)(random_); }
  bool chance(int percent) { return pick(1, 100) <= percent; }

  TensorSpec tensor(int i) {
    TensorSpec spec = gradient("t" + std::to_string(i), {pick(0, 5), 64});
    spec.stepwise = !chance(15);
    spec.channel = chance(10) ? 1 : 0;
    if (chance(15)) spec.dtype = DType::kFloat64;
    if (is_ranked_) spec.priority = pick(-2, 2);
    if (chance(10)) spec.kind = CollectiveKind::kBroadcast;
    return spec;
  }

  void add_to_all(const Call& call) {
    for (Program& program : scenario_.programs) program.push_back(call);
  }

  // Most tensors on all ranks, each rank in an order of its own; then all wait.
  void write_phase() {
    std::vector<std::vector<SubmitCall>> calls(scenario_.programs.size());
    for (TensorSpec& spec : tensors_) {
      if (chance(8)) spec.shape.push_back(1);
      if (!chance(12)) write_tensor(spec, calls);
    }
    if (chance(20)) {
      TensorSpec once = gradient("once#" + std::to_string(serial_++));
      once.once = true;
      write_tensor(once, calls);
    }
    for (std::size_t rank = 0; rank < calls.size(); ++rank) {
      std::shuffle(calls[rank].begin(), calls[rank].end(), random_);
      for (SubmitCall& call : calls[rank]) scenario_.programs[rank].emplace_back(std::move(call));
    }
    add_to_all(WaitCall{});
  }

  void write_tensor(const TensorSpec& spec, std::vector<std::vector<SubmitCall>>& calls) {
    const bool mismatch = calls.size() > 1 && chance(4);
    const int absent_percent = chance(20) ? pick(0, 100) : 0;
    for (auto& rank_calls : calls) rank_calls.push_back({spec, chance(absent_percent)});
    if (mismatch) {
      TensorSpec& other = calls[static_cast<std::size_t>(pick(1, static_cast<int>(calls.size()) - 1))].back().spec;
      if (is_ranked_ && chance(50)) {
        other.priority = 7;
      } else {
        other.shape = {7};
      }
    }
    ++(mismatch ? scenario_.mismatches : scenario_.ends)[spec.name];
  }

  std::mt19937_64 random_;
  const bool is_ranked_;
  std::vector<TensorSpec> tensors_;
  int serial_ = 0;
  Scenario scenario_;
};

Program with_pauses(const Program& program, std::mt19937_64& random) {
  Program slow;
  for (const Call& call : program) {
    if (random() % 10 == 0) slow.emplace_back(PauseCall{std::chrono::microseconds(1 + random() % 3000)});
    slow.push_back(call);
  }
  return slow;
}

void expect_all_ended(Simulation& world, int size, const Scenario& scenario) {
  ASSERT_EQ(world.stuck(), "");
  ASSERT_LT(world.duration(), std::chrono::seconds(10)) << "it took a stall to go on";
  for (int rank = 0; rank < size; ++rank) {
    EngineModel& engine = world.engine(rank);
    ASSERT_TRUE(engine.idle()) << engine.in_flight();
    ASSERT_EQ(engine.stream(), world.engine(0).stream());
    ASSERT_EQ(engine.failures(), world.engine(0).failures());
    std::map<std::string, int> mismatches;
    for (const TensorFailure& failure : engine.failures()) ++mismatches[failure.name];
    ASSERT_EQ(mismatches, scenario.mismatches);
    for (const auto& [name, times] : scenario.ends) ASSERT_EQ(engine.times(name), times) << name;
  }
}

TEST(RandomPrograms, EndOnAllRanksInTheSameWay) {
  int known = 0;
  for (std::uint64_t seed = 1; seed <= test::effort(3000U) && !testing::Test::HasFatalFailure(); ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Scenario scenario = Author(seed).write();
    std::mt19937_64 random(seed);
    for (Program& program : scenario.programs) {
      if (seed % 2 == 0) program = with_pauses(program, random);
    }
    SimulationConfig config = world_of(static_cast<int>(scenario.programs.size()), seed);
    config.coordinator.bucket_bytes = seed % 4 == 0 ? 0 : 4096 * (seed % 4);
    config.coordinator.credit_bytes = 1024 * (seed % 5);
    config.coordinator.most_passed = 1 + seed % 7;
    if (seed % 3 == 0) forget_often(config);
    Simulation world(config, scenario.programs);
    world.run();
    expect_all_ended(world, config.coordinator.size, scenario);
    for (const Seen& seen : world.engine(0).stream()) known += seen.known ? 1 : 0;
  }
  EXPECT_GT(known, test::effort(1000)) << "the programs hardly ever come to known plans, and so show little";
}

// A rank leaves at a random point: tensors that need it fail, no rank waits at the end, and the others agree.
TEST(RandomPrograms, EndWhenARankLeaves) {
  const auto is_wait = [](const Call& call) { return std::holds_alternative<WaitCall>(call); };
  for (std::uint64_t seed = 1; seed <= test::effort(1000U); ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Scenario scenario = Author(seed).write();
    const std::size_t leaver = seed % scenario.programs.size();
    Program& program = scenario.programs[leaver];
    const auto from = program.begin() + static_cast<std::ptrdiff_t>(seed % program.size());
    const auto wait = std::find_if(from, program.end(), is_wait);
    program.erase(wait == program.end() ? wait : wait + 1, program.end());
    program.emplace_back(LeaveCall{});
    SimulationConfig config = world_of(static_cast<int>(scenario.programs.size()), seed);
    config.coordinator.credit_bytes = 1024;
    if (seed % 2 == 0) forget_often(config);
    Simulation world(config, scenario.programs);
    world.run();
    ASSERT_EQ(world.stuck(), "");
    const int first = leaver == 0 ? 1 : 0;
    for (int rank = first; rank < static_cast<int>(scenario.programs.size()); ++rank) {
      if (rank == static_cast<int>(leaver)) continue;
      ASSERT_EQ(world.engine(rank).stream(), world.engine(first).stream());
    }
  }
}

// With very short limits any tensor can stall: each submission still ends once.
TEST(RandomPrograms, EndWhenTensorsStall) {
  std::size_t failures = 0;
  for (std::uint64_t seed = 1; seed <= test::effort(1000U); ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Scenario scenario = Author(seed).write();
    std::mt19937_64 random(seed);
    for (Program& program : scenario.programs) program = with_pauses(program, random);
    SimulationConfig config = world_of(static_cast<int>(scenario.programs.size()), seed);
    config.coordinator.stall_limit = std::chrono::milliseconds(1);
    config.coordinator.credit_bytes = 1024;
    if (seed % 2 == 0) forget_often(config);
    Simulation world(config, scenario.programs);
    world.run();
    ASSERT_EQ(world.stuck(), "");
    for (int rank = 0; rank < config.coordinator.size; ++rank) {
      ASSERT_TRUE(world.engine(rank).idle()) << world.engine(rank).in_flight();
      ASSERT_EQ(world.engine(rank).stream(), world.engine(0).stream());
      failures += world.engine(rank).failures().size();
    }
  }
  EXPECT_GT(failures, test::effort(1000U));
}

}  // namespace
}  // namespace horo
