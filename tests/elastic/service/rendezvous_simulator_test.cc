#include "tests/elastic/service/rendezvous_simulator.h"

#include <gtest/gtest.h>

#include "tests/effort.h"

namespace horo::sim {
namespace {

constexpr std::uint64_t kSeeds = 4'000;
constexpr std::uint64_t kMostSeeds = 20'000;  // until a fault is found

TEST(RendezvousSimulator, EveryInvariantHoldsForAllSeeds) {
  HostsReport all;
  for (std::uint64_t seed = 1; seed <= test::effort(kSeeds); ++seed) {
    const HostsReport one = simulate_hosts(seed);
    ASSERT_EQ(one.run.violation, "");
    all += one;
  }
  for (const auto& [count, what] :
       {std::pair(all.restarts, "restarts"), std::pair(all.crashed_writes, "failed writes of the record"),
        std::pair(all.outages, "agents that end"), std::pair(all.silences, "hosts that are silent"),
        std::pair(all.lost_orders, "lost orders"), std::pair(all.lost_reports, "lost reports"),
        std::pair(all.views_again, "Views with another secret"), std::pair(all.run.epochs, "later epochs"),
        std::pair(all.run.evictions, "evictions"), std::pair(all.run.parks, "parked jobs"),
        std::pair(all.run.ends_by_park, "jobs that end"), std::pair(all.run.settles, "members that settle early")}) {
    EXPECT_GE(count, 5U) << what;
  }
}

TEST(RendezvousSimulator, ASeedAlwaysHasTheSameTrace) {
  for (std::uint64_t seed = 1; seed <= 50; ++seed)
    EXPECT_EQ(simulate_hosts(seed).run.trace, simulate_hosts(seed).run.trace);
}

class ForgetfulRendezvous : public testing::TestWithParam<std::pair<Forgets, const char*>> {};

TEST_P(ForgetfulRendezvous, IsFound) {
  std::uint64_t seed = GetParam().first == Forgets::kAgent ? 7'800 : 1;  // that one is rare
  while (seed <= kMostSeeds && simulate_hosts(seed, GetParam().first).run.violation.empty()) ++seed;
  EXPECT_LE(seed, kMostSeeds);
  RecordProperty("seeds", std::to_string(seed));
}

INSTANTIATE_TEST_SUITE_P(RendezvousSimulator, ForgetfulRendezvous,
                         testing::Values(std::pair(Forgets::kSettle, "Settle"), std::pair(Forgets::kView, "View"),
                                         std::pair(Forgets::kDeparture, "Departure"),
                                         std::pair(Forgets::kAgent, "Agent")),
                         [](const auto& fault) { return std::string(fault.param.second); });

}  // namespace
}  // namespace horo::sim
