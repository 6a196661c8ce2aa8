// Ranks as processes, one of which is killed during a collective.

#include <gtest/gtest.h>

#include "tests/ring/program.h"

namespace horo::test {
namespace {

// The last lines of the surviving ranks after rank 2 was killed.
std::vector<std::string> last_lines_after_a_kill(const std::string& transport, const std::string& mib,
                                                 std::chrono::seconds limit) {
  const std::string addr = free_address();
  std::vector<std::unique_ptr<Program>> ranks;
  for (int rank = 0; rank < 4; ++rank) {
    ranks.push_back(std::make_unique<Program>(
        std::vector<std::string>{HORO_RING_RANK, std::to_string(rank), "4", addr, transport, mib}));
  }
  for (const auto& rank : ranks) EXPECT_EQ(rank->line(), "ready");
  ranks[2]->kill();
  const TimePoint killed = Clock::now();
  std::vector<std::string> lines;
  for (const std::size_t survivor : {0ul, 1ul, 3ul}) lines.push_back(ranks[survivor]->line());
  EXPECT_LT(Clock::now() - killed, limit);
  return lines;
}

TEST(Death, AKilledRankIsNamedByAllOthersInTime) {
  for (const std::string& line : last_lines_after_a_kill("tcp", "4", std::chrono::seconds(5)))
    EXPECT_EQ(line.substr(0, 7), "lost 2 ") << line;
}

// Without rank 0's judgement the named rank may be another one: a rank that reports its reason late can itself be taken
// for lost.
TEST(Death, ARankKilledInSharedMemoryEndsTheWaitsOfAllOthers) {
  for (const std::string& line : last_lines_after_a_kill("shm", "64", std::chrono::seconds(15)))
    EXPECT_EQ(line.substr(0, 5), "lost ") << line;
}

}  // namespace
}  // namespace horo::test
