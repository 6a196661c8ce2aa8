#include "ring/group/link_costs.h"

#include <gtest/gtest.h>

#include "tests/ring/run_ranks.h"

namespace horo::test {
namespace {

// All numbers of a MachineCost, as its log text and with all bits.
std::vector<double> numbers_of(const MachineCost& m) {
  return {m.inside.latency, m.inside.message, m.inside.byte,       m.between.latency, m.between.message,
          m.between.byte,   m.sum_byte,       m.between.wire_byte, m.cores,           static_cast<double>(m.rails)};
}

TEST(LinkCosts, AreTheSameOnAllRanks) {
  for (const Wire wire : {Wire::kInProcess, Wire::kTcp}) {
    for (const auto& hosts : std::vector<std::vector<int>>{{0, 0}, {0, 1}, {0, 0, 1, 1}, {0, 1, 1}, {0, 1, 2, 0}}) {
      const auto size = static_cast<int>(hosts.size());
      std::vector<std::vector<double>> found(hosts.size());
      run_ranks_well({size, wire, {}}, [&](Rank& rank) {
        const MachineCost costs = measure_costs(rank.transport(), *rank.group, hosts, soon());
        found[static_cast<std::size_t>(rank.index())] = numbers_of(costs);
      });
      for (const auto& numbers : found) {
        EXPECT_EQ(numbers, found.front());
        for (std::size_t i = 0; i + 3 < numbers.size(); ++i) EXPECT_GT(numbers[i], 0) << i;
      }
    }
  }
}

TEST(LinkCosts, AMemberThatDiesEndsTheMeasurement) {
  const auto errors = run_ranks({3, Wire::kTcp, {}}, [](Rank& rank) {
    if (rank.index() == 2) return;  // its connections end
    measure_costs(rank.transport(), *rank.group, {0, 0, 0}, soon());
  });
  EXPECT_EQ(origin_of(errors[0]), 2);
  EXPECT_EQ(origin_of(errors[1]), 2);
}

}  // namespace
}  // namespace horo::test
