#include "tools/horo/bench/world.h"

#include <gtest/gtest.h>

namespace horo::tools {
namespace {

TEST(BenchWorld, BusFactorsAreThoseOfNcclTests) {
  EXPECT_DOUBLE_EQ(bus_factor(CollectiveKind::kAllReduce, 4), 1.5);
  EXPECT_DOUBLE_EQ(bus_factor(CollectiveKind::kAllGather, 4), 0.75);
  EXPECT_DOUBLE_EQ(bus_factor(CollectiveKind::kBroadcast, 4), 1);
}

}  // namespace
}  // namespace horo::tools
