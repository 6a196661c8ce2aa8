// Schedules are proven by playing them for every size, without a byte of I/O.

#include "ring/schedule.h"

#include <gtest/gtest.h>

#include <map>
#include <set>

namespace horo {
namespace {

using Schedule = std::vector<Step> (*)(int, int);
// What a member knows of a shard: how often it holds each member's contribution.
using Contributions = std::map<int, int>;

// All ranks take their k-th step together. Returns what every rank ends with, by rank and shard.
std::vector<std::vector<Contributions>> play(Schedule schedule, int size) {
  const auto n = static_cast<std::size_t>(size);
  std::vector<std::vector<Contributions>> held(n, std::vector<Contributions>(n));
  std::vector<std::vector<Step>> steps;
  for (int r = 0; r < size; ++r) {
    for (auto& shard : held[static_cast<std::size_t>(r)]) shard = {{r, 1}};
    steps.push_back(schedule(size, r));
  }
  for (std::size_t k = 0; k < steps[0].size(); ++k) {
    const auto before = held;
    for (int r = 0; r < size; ++r) {
      const Step& step = steps[static_cast<std::size_t>(r)][k];
      const Step& theirs = steps[static_cast<std::size_t>(step.from)][k];
      EXPECT_EQ(theirs.to, r) << "every receive is matched by a send";
      EXPECT_EQ(theirs.send, step.recv);
      Contributions& mine = held[static_cast<std::size_t>(r)][static_cast<std::size_t>(step.recv)];
      const Contributions& arrived = before[static_cast<std::size_t>(step.from)][static_cast<std::size_t>(step.recv)];
      if (!step.reduce) mine = arrived;
      if (step.reduce) {
        for (const auto& [member, times] : arrived) mine[member] += times;
      }
    }
  }
  return held;
}

void expect_all_reduced(Schedule schedule) {
  for (int size = 1; size <= 33; ++size) {
    Contributions once;
    for (int r = 0; r < size; ++r) once[r] = 1;
    for (const auto& shards : play(schedule, size)) {
      for (const Contributions& shard : shards) ASSERT_EQ(shard, once) << size;
    }
  }
}

TEST(Schedule, TheRingAddsEachContributionExactlyOnceForAnySize) {
  expect_all_reduced(ring_schedule);
}

TEST(Schedule, TheRingMovesEachShardTwiceButForItsEnds) {
  for (int size = 1; size <= 33; ++size)
    EXPECT_EQ(ring_schedule(size, size / 2).size(), 2 * static_cast<std::size_t>(size - 1));
}

// The direct exchange sends original pieces, so it is played by what the owner gets.
TEST(Schedule, DirectBringsEachPieceToItsOwnerOnceAndTheResultToEverybody) {
  for (int size = 1; size <= 33; ++size) {
    for (int r = 0; r < size; ++r) {
      std::set<int> pieces_from, results_from;
      for (const Step& step : direct_schedule(size, r)) {
        EXPECT_EQ(step.send, step.reduce ? step.to : r);
        EXPECT_EQ(step.recv, step.reduce ? r : step.from);
        EXPECT_TRUE((step.reduce ? pieces_from : results_from).insert(step.from).second);
        EXPECT_NE(step.from, r);
      }
      EXPECT_EQ(pieces_from.size(), static_cast<std::size_t>(size - 1));
      EXPECT_EQ(results_from.size(), static_cast<std::size_t>(size - 1));
    }
  }
}

TEST(Schedule, NoTwoMembersCrowdOntoAThirdInOneRound) {
  for (int size = 2; size <= 33; ++size) {
    for (std::size_t k = 0; k < 2 * static_cast<std::size_t>(size - 1); ++k) {
      std::set<int> receivers;
      for (int r = 0; r < size; ++r) {
        const Step step = direct_schedule(size, r)[k];
        EXPECT_TRUE(receivers.insert(step.to).second);
        EXPECT_EQ(direct_schedule(size, step.to)[k].from, r);
      }
    }
  }
}

TEST(Schedule, CanBeRead) {
  EXPECT_EQ(print(ring_schedule(2, 0), 0),
            "r0: send 0 to 1, receive 1 from 1, reduce\n"
            "r0: send 1 to 1, receive 0 from 1\n");
  EXPECT_EQ(print(direct_schedule(1, 0), 0), "");
}

}  // namespace
}  // namespace horo
