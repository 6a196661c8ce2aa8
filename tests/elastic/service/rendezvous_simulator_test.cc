#include "tests/elastic/service/rendezvous_simulator.h"

#include <gtest/gtest.h>

#include "tests/effort.h"

namespace horo::sim {
namespace {

constexpr std::uint64_t kSeeds = 4'000;
constexpr std::uint64_t kMostSeeds = 4'000;

TEST(RendezvousSimulator, EveryInvariantHoldsForAllSeeds) {
  HostsReport all;
  for (std::uint64_t seed = 1; seed <= test::effort(kSeeds); ++seed) {
    const HostsReport one = simulate_hosts(seed);
    ASSERT_EQ(one.run.violation, "");
    all += one;
  }
  for (const auto& [count, what] : {std::pair(all.restarts, "restarts"),
                                    std::pair(all.crashed_writes, "failed writes of the record"),
                                    std::pair(all.outages, "agents that end"),
                                    std::pair(all.silences, "hosts that are silent"),
                                    std::pair(all.lost_hosts, "hosts that end"),
                                    std::pair(all.locked_out, "hosts that are locked out"),
                                    std::pair(all.lost_orders, "lost orders"),
                                    std::pair(all.lost_reports, "lost reports"),
                                    std::pair(all.views_again, "Views with another secret"),
                                    std::pair(all.run.epochs, "later epochs"),
                                    std::pair(all.run.evictions, "evictions"),
                                    std::pair(all.run.parks, "parked jobs"),
                                    std::pair(all.run.ends_by_park, "jobs that end"),
                                    std::pair(all.run.settles, "members that settle early"),
                                    std::pair(all.lost_calls, "lost calls"),
                                    std::pair(all.lost_answers, "lost answers"),
                                    std::pair(all.late_calls, "late calls"),
                                    std::pair(all.doubled_calls, "doubled calls"),
                                    std::pair(all.doubled_orders, "doubled orders"),
                                    std::pair(all.lone_parks, "hosts that give up without contact"),
                                    std::pair(all.restarts_in_cuts, "restarts in partitions"),
                                    std::pair(all.epochs_in_cuts, "epochs of one side of a partition"),
                                    std::pair(all.held_calls, "calls that a partition delays"),
                                    std::pair(all.core_pauses, "pauses of the rendezvous"),
                                    std::pair(all.job_pauses, "pauses of the whole job"),
                                    std::pair(all.pauses, "pauses"),
                                    std::pair(all.rendezvous_cuts, "cuts of the rendezvous"),
                                    std::pair(all.long_rendezvous_cuts, "long cuts of the rendezvous"),
                                    std::pair(all.run.found_silent, "members that are missed by others, too"),
                                    std::pair(all.run.held_messages, "messages of members that a partition delays")}) {
    EXPECT_GE(count, test::kSanitized ? 1U : 5U) << what;
  }
  for (const auto& [count, least, what] :
       {std::tuple(all.partitions, 1'000U, "partitions"), std::tuple(all.data_cuts, 200U, "of the members' network"),
        std::tuple(all.control_cuts, 200U, "of the agents' network"), std::tuple(all.whole_cuts, 200U, "of both"),
        std::tuple(all.one_way_cuts, 200U, "in one direction"),
        std::tuple(all.lasting_cuts, 100U, "longer than the job")}) {
    EXPECT_GE(count, test::effort(least)) << "partitions: " << what;
  }
}

TEST(RendezvousSimulator, ASeedAlwaysHasTheSameTrace) {
  for (std::uint64_t seed = 1; seed <= 50; ++seed)
    EXPECT_EQ(simulate_hosts(seed).run.trace, simulate_hosts(seed).run.trace);
}

class FaultOfHosts : public testing::TestWithParam<std::pair<HostsFault, const char*>> {};

// Up to thousands of seeds: a sanitizer's build looks at the steps of the first ones alone.
TEST_P(FaultOfHosts, IsFound) {
  const std::uint64_t most = test::kSanitized ? 200 : kMostSeeds;
  std::uint64_t seed = 1;
  while (seed <= most && simulate_hosts(seed, GetParam().first).run.violation.empty()) ++seed;
  EXPECT_TRUE(test::kSanitized || seed <= kMostSeeds);
  RecordProperty("seeds", std::to_string(seed));
}

INSTANTIATE_TEST_SUITE_P(RendezvousSimulator, FaultOfHosts,
                         testing::Values(std::pair(HostsFault::kForgetsSettle, "ForgetsSettle"),
                                         std::pair(HostsFault::kForgetsView, "ForgetsView"),
                                         std::pair(HostsFault::kForgetsDeparture, "ForgetsDeparture"),
                                         std::pair(HostsFault::kRepeatsTerm, "RepeatsTerm"),
                                         std::pair(HostsFault::kRepeatsEpoch, "RepeatsEpoch"),
                                         std::pair(HostsFault::kEvictsAtOnce, "EvictsAtOnce"),
                                         std::pair(HostsFault::kTellsBeforeItStores, "TellsBeforeItStores"),
                                         std::pair(HostsFault::kTakesAStreamForAHost, "TakesAStreamForAHost"),
                                         std::pair(HostsFault::kGivesSecretsToEvicted, "GivesSecretsToEvicted"),
                                         std::pair(HostsFault::kBlamesBothHosts, "BlamesBothHosts"),
                                         std::pair(HostsFault::kEvictsWithoutNeed, "EvictsWithoutNeed"),
                                         std::pair(HostsFault::kCountsPausesOfRendezvous, "CountsPausesOfRendezvous"),
                                         std::pair(HostsFault::kCountsItsDeafness, "CountsItsDeafness"),
                                         std::pair(HostsFault::kTakesLateOrders, "TakesLateOrders"),
                                         std::pair(HostsFault::kPassesOnOldViews, "PassesOnOldViews"),
                                         std::pair(HostsFault::kForgetsEnds, "ForgetsEnds"),
                                         std::pair(HostsFault::kForgetsFrozen, "ForgetsFrozen"),
                                         std::pair(HostsFault::kIgnoresALostAnswer, "IgnoresALostAnswer"),
                                         std::pair(HostsFault::kDecidesAlone, "DecidesAlone"),
                                         std::pair(HostsFault::kNamesNoneOfACut, "NamesNoneOfACut")),
                         [](const auto& fault) { return std::string(fault.param.second); });

}  // namespace
}  // namespace horo::sim
