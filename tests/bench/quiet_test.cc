#include "bench/against/quiet.h"

#include <gtest/gtest.h>

namespace horo::bench {
namespace {

TEST(BenchQuiet, TheFirstLineOfProcStatIsAllProcessors) {
  const ProcessorTime time = processor_time("cpu  1 2 3 40 5 6 7 8 100 100\ncpu0 9 9 9 9 9 9 9 9 9 9\n");
  EXPECT_EQ(time.idle, 45);
  EXPECT_EQ(time.all, 72) << "user time includes the time of guests";
}

TEST(BenchQuiet, TimeTakenByTheHypervisorIsNotIdle) {
  const ProcessorTime before = processor_time("cpu 0 0 0 0 0 0 0 0"), after = processor_time("cpu 0 0 0 90 0 0 0 10");
  EXPECT_DOUBLE_EQ(idle_part(before, after), 0.9);
}

TEST(BenchQuiet, NoTimeAtAllIsQuiet) {
  const ProcessorTime now = processor_time("cpu 1 1 1 1 1 1 1 1");
  EXPECT_EQ(idle_part(now, now), 1);
}

}  // namespace
}  // namespace horo::bench
