// Random programs over overlapping process sets: collectives, send_recvs, units and joins, in an order of each rank's
// own. No rank is stuck, and a release has the same number on all participating ranks.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>

#include "tests/controller/simulator.h"
#include "tests/effort.h"

namespace horo {
namespace {

using namespace std::chrono_literals;
using Groups = std::vector<std::vector<int>>;  // by number of the set; the world first

// How often each name must end without failure, by rank.
using Ends = std::vector<std::map<std::string, int>>;

class SetAuthor {
 public:
  SetAuthor(std::uint64_t seed, int size)
      : random_(seed), is_ranked_(seed % 2 == 0), programs_(static_cast<std::size_t>(size)), ends(programs_.size()) {
    groups.push_back(some_ranks(100));
    while (groups.size() < 4) {
      std::vector<int> ranks = some_ranks(50);
      if (std::find(groups.begin(), groups.end(), ranks) == groups.end()) groups.push_back(std::move(ranks));
    }
    for (std::size_t set = 1; set < groups.size(); ++set) add_to_all(AddSetCall{groups[set]});
    add_to_all(WaitCall{});
  }

  // All calls of one phase, each rank in its own order; then all ranks wait.
  void write_phase() {
    begin();
    for (std::uint32_t set = 0; set < groups.size(); ++set) {
      for (int i = 0; i < 4; ++i) {
        if (chance(80)) write({gradient_of(set, "t" + std::to_string(i))});
      }
      if (chance(60)) write(unit_of(set));
      if (chance(60)) write({message_of(set)});
      if (chance(30)) write({gather_of(set)});
    }
    end();
  }

  // Each member of a set has its own number of batches, and joins after the last.
  void write_uneven_phase(std::uint32_t set) {
    const int batches = pick(0, 4);
    for (std::size_t i = 0; i < groups[set].size(); ++i) {
      const auto rank = static_cast<std::size_t>(groups[set][i]);
      const int own = i == 0 ? batches : pick(0, batches);
      for (int batch = 0; batch < own; ++batch) {
        for (const char* name : {"t0", "t1"}) {
          programs_[rank].emplace_back(SubmitCall{gradient_of(set, name)});
          ++ends[rank][name_in(set, name)];
        }
        if (chance(50)) programs_[rank].emplace_back(WaitCall{});
        if (!std::holds_alternative<WaitCall>(programs_[rank].back())) programs_[rank].emplace_back(WaitCall{});
        programs_[rank].emplace_back(EndStepCall{set});
      }
      programs_[rank].emplace_back(JoinCall{set});
      if (chance(50)) programs_[rank].emplace_back(WaitCall{});
    }
    add_to_all(WaitCall{});
  }

  void write_step_ends() {
    for (std::uint32_t set = 0; set < groups.size(); ++set) {
      for (const int rank : groups[set]) program(rank).emplace_back(EndStepCall{set});
    }
  }

  void add_to_all(const Call& call) {
    for (Program& program : programs_) program.push_back(call);
  }
  // Some ranks leave out this percentage of their calls; some wait.
  std::vector<Program> programs(int forgotten_percent, int pause_percent) {
    std::vector<Program> changed(programs_.size());
    for (std::size_t rank = 0; rank < programs_.size(); ++rank) {
      for (const Call& call : programs_[rank]) {
        if (chance(pause_percent)) changed[rank].emplace_back(PauseCall{std::chrono::microseconds(pick(1, 3000))});
        if (!std::holds_alternative<SubmitCall>(call) || !chance(forgotten_percent)) changed[rank].push_back(call);
      }
    }
    return changed;
  }

  int pick(int least, int most) { return std::uniform_int_distribution<int>(least, most)(random_); }
  bool chance(int percent) { return pick(1, 100) <= percent; }

 private:
  using Unit = std::vector<TensorSpec>;

  Program& program(int rank) { return programs_[static_cast<std::size_t>(rank)]; }
  static std::string name_in(std::uint32_t set, const std::string& name) { return std::to_string(set) + "/" + name; }

  std::vector<int> some_ranks(int percent) {
    std::vector<int> ranks;
    for (int rank = 0; rank < static_cast<int>(programs_.size()); ++rank) {
      if (chance(percent)) ranks.push_back(rank);
    }
    if (ranks.empty()) ranks.push_back(pick(0, static_cast<int>(programs_.size()) - 1));
    return ranks;
  }

  TensorSpec gradient_of(std::uint32_t set, const std::string& name) {
    TensorSpec spec = gradient(name_in(set, name), {64});
    spec.set = set;
    if (is_ranked_) spec.priority = name.back() % 5;
    return spec;
  }
  TensorSpec gather_of(std::uint32_t set) {
    TensorSpec spec = gradient_of(set, "g");
    spec.kind = CollectiveKind::kAllGather;
    return spec;
  }
  Unit unit_of(std::uint32_t set) {
    Unit unit;
    const int size = pick(1, 3);
    for (int i = 0; i < size; ++i) {
      const std::string name = "u" + std::to_string(size) + "_" + std::to_string(i);
      unit.push_back(chance(20) ? gradient_of(set, name + "d") : gradient_of(set, name));
      if (unit.back().name.back() == 'd') unit.back().dtype = DType::kFloat64;
      unit.back().unit = "u" + std::to_string(size);
      unit.back().unit_size = size;
    }
    return unit;
  }
  TensorSpec message_of(std::uint32_t set) {
    const int last = static_cast<int>(groups[set].size()) - 1;
    TensorSpec spec = gradient_of(set, "m");
    spec.kind = CollectiveKind::kSendRecv;
    spec.stepwise = false;
    spec.root = pick(0, last);
    spec.peer = pick(0, last);
    spec.name += " (" + std::to_string(spec.root) + " to " + std::to_string(spec.peer) + ")";
    return spec;
  }

  void begin() { calls_.assign(programs_.size(), {}); }
  void write(const Unit& unit) {
    const TensorSpec& spec = unit.front();
    std::set<int> ranks(groups[spec.set].begin(), groups[spec.set].end());
    if (spec.kind == CollectiveKind::kSendRecv) {
      const auto at = [&](int index) { return groups[spec.set][static_cast<std::size_t>(index)]; };
      ranks = {at(spec.root), at(spec.peer)};
    }
    for (const int rank : ranks) {
      calls_[static_cast<std::size_t>(rank)].push_back(unit);
      for (const TensorSpec& one : unit) ++ends[static_cast<std::size_t>(rank)][one.name];
    }
  }
  void end() {
    for (std::size_t rank = 0; rank < calls_.size(); ++rank) {
      std::shuffle(calls_[rank].begin(), calls_[rank].end(), random_);
      for (const Unit& unit : calls_[rank]) {
        for (const TensorSpec& spec : unit) programs_[rank].emplace_back(SubmitCall{spec});
      }
    }
    add_to_all(WaitCall{});
  }

  std::mt19937_64 random_;
  const bool is_ranked_;
  std::vector<Program> programs_;
  std::vector<std::vector<Unit>> calls_;

 public:
  Groups groups;
  Ends ends;
};

// Each release has the same contents on all participating ranks, and numbers rise on each of them.
void expect_one_order(Simulation& world, const Groups& groups) {
  std::map<std::uint64_t, std::pair<Seen, std::vector<int>>> releases;
  for (int rank = 0; rank < static_cast<int>(groups[0].size()); ++rank) {
    std::uint64_t last = 0;
    for (const Seen& seen : world.engine(rank).stream()) {
      if (seen.skipped) continue;
      ASSERT_GT(seen.number, last) << "rank " << rank;
      last = seen.number;
      auto& [first, ranks] = releases.try_emplace(seen.number, seen, std::vector<int>()).first->second;
      ASSERT_EQ(first, seen) << "rank " << rank;
      ranks.push_back(rank);
    }
  }
  for (const auto& [number, release] : releases) {
    const auto& [seen, ranks] = release;
    ASSERT_EQ(ranks, seen.ranks.empty() ? groups[seen.set] : seen.ranks) << seen.names.front();
  }
}

bool names_its_tensor(const TensorFailure& failure) {
  if (failure.name == "join") return failure.text.find("join") != std::string::npos;
  if (failure.name.find("process_set#") != std::string::npos) return failure.text.find("process") != std::string::npos;
  return failure.text.find("'" + failure.name + "'") != std::string::npos;
}

void expect_all_idle(Simulation& world, int size) {
  ASSERT_EQ(world.stuck(), "");
  for (int rank = 0; rank < size; ++rank) ASSERT_TRUE(world.engine(rank).idle()) << world.engine(rank).in_flight();
}

TEST(RandomSets, EndOnAllRanksInOneOrder) {
  int known = 0;
  for (std::uint64_t seed = 1; seed <= test::effort(600U) && !testing::Test::HasFatalFailure(); ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    const int size = 3 + static_cast<int>(seed % 6);
    SetAuthor author(seed, size);
    for (int step = author.pick(2, 6); step > 0; --step) {
      author.write_phase();
      author.write_step_ends();
      if (author.chance(40)) author.write_uneven_phase(static_cast<std::uint32_t>(author.pick(0, 3)));
    }
    SimulationConfig config = world_of(size, seed);
    config.coordinator.credit_bytes = 256 * (seed % 8);
    config.coordinator.most_passed = 1 + seed % 7;
    if (seed % 3 == 0) forget_often(config);
    Simulation world(config, author.programs(0, seed % 2 == 0 ? 10 : 0));
    world.run();
    expect_all_idle(world, size);
    expect_one_order(world, author.groups);
    ASSERT_LT(world.duration(), 10s) << "it took a stall to go on";
    for (int rank = 0; rank < size; ++rank) {
      const EngineModel& engine = world.engine(rank);
      ASSERT_TRUE(engine.failures().empty()) << engine.failures().front().text;
      for (const auto& [name, times] : author.ends[static_cast<std::size_t>(rank)]) {
        ASSERT_EQ(engine.times(name), times) << name << " on rank " << rank;
      }
      for (const Seen& seen : engine.stream()) known += seen.known && seen.set > 0 ? 1 : 0;
    }
  }
  EXPECT_GT(known, test::effort(1000)) << "the programs hardly ever come to known plans, and so show little";
}

// Ranks leave out calls, sets are removed while they are in use, ranks leave: each submission still ends once.
TEST(RandomSets, EndWithMissingCallsRemovedSetsAndRanksThatLeave) {
  std::size_t failures = 0;
  for (std::uint64_t seed = 1; seed <= test::effort(600U) && !testing::Test::HasFatalFailure(); ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    const int size = 3 + static_cast<int>(seed % 6);
    SetAuthor author(seed, size);
    for (int step = author.pick(1, 4); step > 0; --step) {
      author.write_phase();
      if (author.chance(50)) author.write_step_ends();
      if (author.chance(30)) author.write_uneven_phase(static_cast<std::uint32_t>(author.pick(0, 3)));
      if (author.chance(20)) author.add_to_all(RemoveSetCall{static_cast<std::uint32_t>(author.pick(1, 3))});
    }
    author.add_to_all(WaitCall{});
    std::vector<Program> programs = author.programs(seed % 3 == 0 ? 0 : 5, 5);
    if (seed % 4 == 0) {
      Program& program = programs[static_cast<std::size_t>(author.pick(0, size - 1))];
      program.resize(program.size() / 2);
      program.emplace_back(LeaveCall{});
    }
    SimulationConfig config = world_of(size, seed);
    config.coordinator.stall_limit = std::chrono::milliseconds(author.pick(2, 50));
    if (seed % 2 == 0) forget_often(config);
    Simulation world(config, programs);
    world.run();
    ASSERT_EQ(world.stuck(), "");
    for (int rank = 0; rank < size; ++rank) {
      for (const TensorFailure& failure : world.engine(rank).failures())
        ASSERT_TRUE(names_its_tensor(failure)) << failure.text;
      failures += world.engine(rank).failures().size();
    }
    if (seed % 4 != 0) {
      expect_all_idle(world, size);
      expect_one_order(world, author.groups);
    }
  }
  EXPECT_GT(failures, test::effort(2000U));
}

TEST(RandomSets, SixtyFourRanksInOverlappingSets) {
  SetAuthor author(7, 64);
  for (int step = 0; step < 6; ++step) {
    author.write_phase();
    author.write_step_ends();
    author.write_uneven_phase(static_cast<std::uint32_t>(step % 4));
  }
  Simulation world(world_of(64, 7), author.programs(0, 2));
  world.run();
  expect_all_idle(world, 64);
  expect_one_order(world, author.groups);
  for (int rank = 0; rank < 64; ++rank) ASSERT_TRUE(world.engine(rank).failures().empty());
}

}  // namespace
}  // namespace horo
