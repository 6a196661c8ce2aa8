#include "tests/elastic/simulator.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "tests/effort.h"

namespace horo::sim {
namespace {

constexpr std::uint64_t kSeeds = 20'000;

TEST(ElasticSimulator, EveryInvariantHoldsForAllSeeds) {
  for (std::uint64_t seed = 1; seed <= test::effort(kSeeds); ++seed) ASSERT_EQ(simulate(seed).violation, "");
}

TEST(ElasticSimulator, EveryInvariantHoldsForAllSeedsOfJobsThatMayGrow) {
  SimReport all;
  for (std::uint64_t seed = 1; seed <= test::effort(kSeeds); ++seed) {
    const SimReport report = simulate(seed, Planted::kNone, true);
    ASSERT_EQ(report.violation, "");
    all += report;
  }
  for (const auto& [count, what] :
       {std::pair(all.joined, "processes that join"), std::pair(all.synced, "joiners that get the state"),
        std::pair(all.refused, "processes that are refused"), std::pair(all.empty_borders, "borders without a joiner"),
        std::pair(all.broken_borders, "borders that not all members reach"),
        std::pair(all.states_lost, "jobs that lose the state"),
        std::pair(all.waits_for_joiners, "parked jobs that go on for a joiner")}) {
    EXPECT_GE(count, test::effort(20U)) << what;
    RecordProperty(what, std::to_string(count));
  }
}

TEST(ElasticSimulator, TheSeedsReachAllThatTheProtocolIsFor) {
  SimReport all;
  for (std::uint64_t seed = 1; seed <= 2'000; ++seed) all += simulate(seed);
  for (const auto& [count, what] :
       {std::pair(all.epochs, "later epochs"), std::pair(all.commits_settled, "commits delivered after a View"),
        std::pair(all.commits_dropped, "commits that run again"), std::pair(all.late_passes, "late barriers"),
        std::pair(all.installs_cancelled, "cancelled installs"), std::pair(all.install_timeouts, "install timeouts"),
        std::pair(all.repeated_frozen, "Frozen of old epochs"), std::pair(all.evictions, "evictions"),
        std::pair(all.links_given_up, "evictions for a link"), std::pair(all.parks, "parked jobs"),
        std::pair(all.failed_lanes, "lanes without a member"), std::pair(all.settles, "members that settle early"),
        std::pair(all.fail_alike, "jobs whose members fail alike"), std::pair(all.pauses, "pauses"),
        std::pair(all.found_silent, "members that are missed by others, too"),
        std::pair(all.failed_exits, "members that fail after they have left")}) {
    EXPECT_GE(count, 5U) << what;
  }
}

TEST(ElasticSimulator, ASeedAlwaysHasTheSameTrace) {
  std::set<std::uint64_t> traces;
  for (std::uint64_t seed = 1; seed <= 100; ++seed) {
    EXPECT_EQ(simulate(seed).trace, simulate(seed).trace);
    traces.insert(simulate(seed).trace);
  }
  EXPECT_EQ(traces.size(), 100U);
}

struct PlantedFault {
  Planted planted;
  const char* name;
  bool joins = false;
};

class PlantedFaults : public testing::TestWithParam<PlantedFault> {};

TEST_P(PlantedFaults, AreFound) {
  std::uint64_t seed = 1;
  while (seed <= kSeeds && simulate(seed, GetParam().planted, GetParam().joins).violation.empty()) ++seed;
  EXPECT_LE(seed, kSeeds);
  RecordProperty("seeds", std::to_string(seed));
}

INSTANTIATE_TEST_SUITE_P(
    ElasticSimulator, PlantedFaults,
    testing::Values(PlantedFault{Planted::kDecidesBeforeAllAreFrozen, "DecidesBeforeAllAreFrozen"},
                    PlantedFault{Planted::kTakesFrozenOfAnOldEpoch, "TakesFrozenOfAnOldEpoch"},
                    PlantedFault{Planted::kForgetsAFailedExit, "ForgetsAFailedExit"},
                    PlantedFault{Planted::kSendsTwoViewsOfAnEpoch, "SendsTwoViewsOfAnEpoch"},
                    PlantedFault{Planted::kEvictsByCount, "EvictsByCount"},
                    PlantedFault{Planted::kGivesUpWithoutNeed, "GivesUpWithoutNeed"},
                    PlantedFault{Planted::kCountsItsPauses, "CountsItsPauses"},
                    PlantedFault{Planted::kCommitsByTheGreatestProgress, "CommitsByTheGreatestProgress"},
                    PlantedFault{Planted::kTakesAnAbsentLaneAsInfinite, "TakesAnAbsentLaneAsInfinite"},
                    PlantedFault{Planted::kDeliversBeforeTheBarrier, "DeliversBeforeTheBarrier"},
                    PlantedFault{Planted::kDeliversAfterFrozen, "DeliversAfterFrozen"},
                    PlantedFault{Planted::kCommitsThePartsOfARoundAlone, "CommitsThePartsOfARoundAlone"},
                    PlantedFault{Planted::kIgnoresAFreezeDuringInstall, "IgnoresAFreezeDuringInstall"},
                    PlantedFault{Planted::kNamesWhatItWasTold, "NamesWhatItWasTold"},
                    PlantedFault{Planted::kNamesNoneInInstall, "NamesNoneInInstall"},
                    PlantedFault{Planted::kForgetsAFreezeBehindAView, "ForgetsAFreezeBehindAView"},
                    PlantedFault{Planted::kForgetsALaneInFrozen, "ForgetsALaneInFrozen"},
                    PlantedFault{Planted::kNumbersRanksInAnotherOrder, "NumbersRanksInAnotherOrder"},
                    PlantedFault{Planted::kSubmitsADeliveredCollectiveAgain, "SubmitsADeliveredCollectiveAgain"}),
    [](const auto& fault) { return fault.param.name; });

INSTANTIATE_TEST_SUITE_P(ElasticJoins, PlantedFaults,
                         testing::Values(PlantedFault{Planted::kWaitsForAJoiner, "WaitsForAJoiner", true},
                                         PlantedFault{Planted::kGrowsBeforeAllCan, "GrowsBeforeAllCan", true},
                                         PlantedFault{Planted::kAddsJoinersAnywhere, "AddsJoinersAnywhere", true},
                                         PlantedFault{Planted::kFreezesAtABorder, "FreezesAtABorder", true},
                                         PlantedFault{Planted::kForgetsWhoHasTheState, "ForgetsWhoHasTheState", true},
                                         PlantedFault{Planted::kKeepsAMissedJoiner, "KeepsAMissedJoiner", true},
                                         PlantedFault{Planted::kForgetsJoinersIfParked, "ForgetsJoinersIfParked", true},
                                         PlantedFault{Planted::kGivesAnIdAgain, "GivesAnIdAgain", true}),
                         [](const auto& fault) { return fault.param.name; });

}  // namespace
}  // namespace horo::sim
