#include "tests/elastic/service/rendezvous_simulator.h"

#include <gtest/gtest.h>

#include "tests/effort.h"

namespace horo::sim {
namespace {

constexpr std::uint64_t kSeeds = 10'000;

TEST(RendezvousSimulator, DISABLED_Survey) {
  HostsReport all;
  if (getenv("SEED")) { std::printf("%s\n", simulate_hosts(std::strtoull(getenv("SEED"), nullptr, 10)).run.violation.c_str()); return; }
  int bad = 0;
  for (std::uint64_t seed = 1; seed <= kSeeds; ++seed) {
    const HostsReport one = simulate_hosts(seed);
    all.run += one.run;
    all.restarts += one.restarts; all.crashed_writes += one.crashed_writes; all.outages += one.outages;
    all.silences += one.silences; all.lost_orders += one.lost_orders; all.lost_reports += one.lost_reports;
    all.views_again += one.views_again;
    if (!one.run.violation.empty() && ++bad < 20) std::printf("%s\n", one.run.violation.c_str());
  }
  std::printf("bad %d restarts %lu crashed %lu outages %lu silences %lu lost %lu %lu again %lu epochs %lu ev %lu parks %lu ends %lu settles %lu events %lu\n", bad, all.restarts,
    all.crashed_writes, all.outages, all.silences, all.lost_orders, all.lost_reports, all.views_again, all.run.epochs, all.run.evictions, all.run.parks, all.run.ends_by_park, all.run.settles, all.run.events);
}

TEST(RendezvousSimulator, EveryInvariantHoldsForAllSeeds) {
  for (std::uint64_t seed = 1; seed <= test::effort(kSeeds); ++seed) ASSERT_EQ(simulate_hosts(seed).run.violation, "");
}

}  // namespace
}  // namespace horo::sim
