#include "ring/algorithms/schedule_run.h"

#include <gtest/gtest.h>

namespace horo {
namespace {

MachineCost with_cores(double cores) {
  MachineCost machine;
  machine.cores = cores;
  return machine;
}

TEST(SlotsFor, AreFewerWhereMembersShareCores) {
  EXPECT_EQ(slots_for({0, 0}, with_cores(2)), 4u);
  EXPECT_EQ(slots_for({0, 0}, with_cores(64)), 4u);
  EXPECT_EQ(slots_for({0, 0, 0}, with_cores(2)), 2u);
  EXPECT_EQ(slots_for({0, 0, 0, 0}, with_cores(2)), 2u);
  EXPECT_EQ(slots_for(std::vector<int>(8, 0), with_cores(2)), 1u);
  EXPECT_EQ(slots_for(std::vector<int>(64, 0), with_cores(1)), 1u);
}

TEST(SlotsFor, AreThoseOfOneCorePerMemberIfCoresAreUnknown) {
  EXPECT_EQ(slots_for({0, 0, 0, 0}, MachineCost{}), 4u);
  EXPECT_EQ(slots_for({}, with_cores(2)), 4u);
}

TEST(SlotsFor, AreSixteenBetweenHostsForAnyNumberOfCores) {
  EXPECT_EQ(slots_for({0, 1}, with_cores(1)), 16u);
  EXPECT_EQ(slots_for({0, 0, 1, 1}, with_cores(2)), 16u);
}

}  // namespace
}  // namespace horo
