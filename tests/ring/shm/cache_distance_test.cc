#include <gtest/gtest.h>

#include <numeric>
#include <thread>
#include <vector>

#include "ring/shm/cache_distance.h"

namespace horo {
namespace {

TEST(CopyPastCaches, CopiesWhatMemcpyWould) {
  constexpr std::size_t kRoom = 700;
  std::vector<std::byte> from(kRoom);
  for (std::size_t i = 0; i < kRoom; ++i) from[i] = static_cast<std::byte>(i * 7 + 1);
  for (const std::size_t bytes : {0, 1, 15, 16, 63, 64, 65, 127, 128, 300, 511}) {
    for (std::size_t to_at = 0; to_at < 70; ++to_at) {
      const std::size_t from_at = to_at * 5 % 67;
      std::vector<std::byte> to(kRoom), expected(kRoom);
      std::copy_n(from.begin() + static_cast<std::ptrdiff_t>(from_at), bytes,
                  expected.begin() + static_cast<std::ptrdiff_t>(to_at));
      copy_past_caches(to.data() + to_at, from.data() + from_at, bytes);
      ASSERT_EQ(to, expected) << bytes << " bytes from " << from_at << " to " << to_at;
    }
  }
}

TEST(CacheLineProbe, TellsATimeOfWhatWasWrittenAlone) {
  CacheLineProbe lines{};
  EXPECT_EQ(lines.read(7), Duration{});
  std::jthread([&] { lines.write(7); }).join();
  EXPECT_GT(lines.read(7), Duration{});
  EXPECT_EQ(lines.read(8), Duration{});
}

}  // namespace
}  // namespace horo
