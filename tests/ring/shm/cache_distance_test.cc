#include "ring/shm/cache_distance.h"

#include <gtest/gtest.h>

#include <numeric>
#include <thread>
#include <vector>

namespace horo {
namespace {

TEST(CopyPastCaches, CopiesTheSameBytesAsMemcpy) {
  constexpr std::size_t kBytes = 700;
  std::vector<std::byte> from(kBytes);
  for (std::size_t i = 0; i < kBytes; ++i) from[i] = static_cast<std::byte>(i * 7 + 1);
  for (const std::size_t bytes : {0, 1, 15, 16, 63, 64, 65, 127, 128, 300, 511}) {
    for (std::size_t to_at = 0; to_at < 70; ++to_at) {
      const std::size_t from_at = to_at * 5 % 67;
      std::vector<std::byte> to(kBytes), expected(kBytes);
      std::copy_n(from.begin() + static_cast<std::ptrdiff_t>(from_at), bytes,
                  expected.begin() + static_cast<std::ptrdiff_t>(to_at));
      copy_past_caches(to.data() + to_at, from.data() + from_at, bytes);
      ASSERT_EQ(to, expected) << bytes << " bytes from " << from_at << " to " << to_at;
    }
  }
}

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
