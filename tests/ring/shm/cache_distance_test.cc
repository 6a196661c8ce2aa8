#include "ring/shm/cache_distance.h"

#include <gtest/gtest.h>

#include <thread>

namespace horo {
namespace {

TEST(CacheLineProbe, MeasuresOnlyLinesThatHoldTheValue) {
  CacheLineProbe lines{};
  EXPECT_EQ(lines.read(7), Duration{});
  std::jthread([&] { lines.write(7); }).join();
  EXPECT_GT(lines.read(7), Duration{});
  EXPECT_EQ(lines.read(8), Duration{});
}

TEST(CacheDistances, AMemberIsRemoteAfterASlowProbeAndNearAfterAFastOne) {
  CacheDistances distances(4, 1);
  EXPECT_FALSE(distances.any_remote());
  distances.record(2, std::chrono::nanoseconds(135));
  EXPECT_TRUE(distances.is_remote(2) && distances.any_remote());
  distances.record(2, Duration{});
  EXPECT_TRUE(distances.is_remote(2)) << "an unknown time changes nothing";
  distances.record(2, std::chrono::nanoseconds(30));
  EXPECT_FALSE(distances.is_remote(2) || distances.any_remote());
}

TEST(CacheDistances, LongCollectivesAndEvery16thShortOneProbeAnotherMemberEach) {
  CacheDistances distances(3, 2);
  int probes = 0, last = -1;
  for (int i = 0; i < 32; ++i) {
    if (!distances.is_probe_due(8 << 10)) continue;
    ++probes;
    EXPECT_TRUE(distances.next_to_probe() != 2 && distances.next_to_probe() != last);
    last = distances.next_to_probe();
  }
  EXPECT_EQ(probes, 2);
  EXPECT_TRUE(distances.is_probe_due(1 << 20) && distances.is_probe_due(1 << 20));
}

TEST(CacheDistances, ASettingReplacesTheProbes) {
  CacheDistances distances(2, 0);
  distances.set("on");
  EXPECT_TRUE(distances.is_remote(1) && !distances.is_probe_due(1 << 20));
  distances.set("off");
  EXPECT_FALSE(distances.any_remote());
}

}  // namespace
}  // namespace horo
