// Random programs in which the members of process sets alone add, use and remove them, each in an order of its own,
// while the other ranks do something else.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>

#include "tests/controller/simulator.h"
#include "tests/effort.h"

namespace horo {
namespace {

using namespace std::chrono_literals;

class MemberSetAuthor {
 public:
  MemberSetAuthor(std::uint64_t seed, int size) : random_(seed), programs_(static_cast<std::size_t>(size)) {}

  // In each phase the members of some sets add them, use them and remove most of them. No call waits for a rank that is
  // no member.
  void write_phase(int phase) {
    std::vector<std::pair<std::string, std::vector<int>>> sets;
    for (int set = pick(1, 5); set > 0; --set) {
      sets.emplace_back("p" + std::to_string(phase) + "s" + std::to_string(set), some_ranks());
    }
    add_calls(sets, [](const auto& set) { return Call{AddSetCall{set.second, set.first}}; });
    for (int use = pick(1, 3); use > 0; --use) {
      const std::string name = "t" + std::to_string(use);
      add_calls(sets, [&](const auto& set) { return Call{SubmitCall{gradient(name, {64}), false, set.first}}; });
      for (const auto& [set, ranks] : sets) {
        for (const int rank : ranks) ++uses[static_cast<std::size_t>(rank)][name];
      }
    }
    std::erase_if(sets, [&](const auto&) { return pick(1, 100) > 80; });
    add_calls(sets, [](const auto& set) { return Call{RemoveSetCall{0, set.first}}; });
  }

  // Calls of all ranks of the world.
  void write_world(const std::string& name) {
    for (Program& program : programs_) program.insert(program.end(), {SubmitCall{gradient(name, {8})}, WaitCall{}});
  }

  int pick(int least, int most) { return std::uniform_int_distribution<int>(least, most)(random_); }
  const std::vector<Program>& programs() const { return programs_; }

 private:
  using Sets = std::vector<std::pair<std::string, std::vector<int>>>;

  std::vector<int> some_ranks() {
    std::vector<int> ranks;
    for (int rank = 0; rank < static_cast<int>(programs_.size()); ++rank) {
      if (pick(0, 1) == 1) ranks.push_back(rank);
    }
    if (ranks.empty()) ranks.push_back(pick(0, static_cast<int>(programs_.size()) - 1));
    return ranks;
  }

  // The call for each set on its members, and then a wait.
  template <class CallOf>
  void add_calls(const Sets& sets, const CallOf& call_of) {
    for (int rank = 0; rank < static_cast<int>(programs_.size()); ++rank) {
      std::vector<Call> calls;
      for (const auto& set : sets) {
        if (std::ranges::binary_search(set.second, rank)) calls.push_back(call_of(set));
      }
      std::shuffle(calls.begin(), calls.end(), random_);
      Program& program = programs_[static_cast<std::size_t>(rank)];
      for (const Call& call : calls) {
        if (pick(1, 100) <= 10) program.emplace_back(PauseCall{std::chrono::microseconds(pick(1, 3000))});
        program.push_back(call);
      }
      program.emplace_back(WaitCall{});
    }
  }

  std::mt19937_64 random_;
  std::vector<Program> programs_;

 public:
  std::vector<std::map<std::string, int>> uses{programs_.size()};  // by rank: how often each tensor ends
};

void expect_same_releases(Simulation& world, int size) {
  std::map<std::uint64_t, std::pair<Seen, std::vector<int>>> releases;
  for (int rank = 0; rank < size; ++rank) {
    for (const Seen& seen : world.engine(rank).stream()) {
      auto& [first, ranks] = releases.try_emplace(seen.number, seen, std::vector<int>()).first->second;
      ASSERT_EQ(first, seen) << "rank " << rank;
      ranks.push_back(rank);
    }
  }
  for (const auto& [number, release] : releases) {
    ASSERT_EQ(release.second, world.engine(0).all_sets().at(release.first.set)) << release.first.names.front();
  }
}

TEST(RandomMemberSets, EndOnAllMembersAndHoldUpNoOtherRank) {
  std::size_t sets = 0;
  for (std::uint64_t seed = 1; seed <= test::effort(400U) && !testing::Test::HasFatalFailure(); ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    const int size = 2 + static_cast<int>(seed % 7);
    MemberSetAuthor author(seed, size);
    for (int phase = author.pick(2, 5); phase > 0; --phase) {
      author.write_phase(phase);
      if (author.pick(1, 100) <= 40) author.write_world("w" + std::to_string(phase));
    }
    Simulation world(world_of(size, seed), author.programs());
    world.run();
    ASSERT_EQ(world.stuck(), "");
    ASSERT_LT(world.duration(), 10s) << "it took a stall to go on";
    expect_same_releases(world, size);
    for (int rank = 0; rank < size; ++rank) {
      const EngineModel& engine = world.engine(rank);
      ASSERT_TRUE(engine.idle()) << engine.in_flight();
      ASSERT_TRUE(engine.failures().empty()) << engine.failures().front().text;
      ASSERT_EQ(engine.all_sets(), world.engine(0).all_sets());
      ASSERT_EQ(engine.sets(), world.engine(0).sets());
      for (const auto& [name, times] : author.uses[static_cast<std::size_t>(rank)]) {
        ASSERT_EQ(engine.times(name), times) << name << " on rank " << rank;
      }
    }
    sets += world.engine(0).all_sets().size() - 1;
  }
  EXPECT_GT(sets, test::effort(3000U));
}

}  // namespace
}  // namespace horo
