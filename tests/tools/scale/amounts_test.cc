#include "tools/horo/scale/amounts.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>
#include <random>

namespace horo::tools {
namespace {

using testing::ElementsAre;

TEST(RoundedRatio, RoundsHalvesUp) {
  EXPECT_EQ(rounded_ratio(5, 10), 1);
  EXPECT_EQ(rounded_ratio(4, 10), 0);
  EXPECT_EQ(rounded_ratio(-5, 10), 0);
  EXPECT_EQ(rounded_ratio(-6, 10), -1);
}

TEST(SharesOf, GiveWhatIsLeftToTheLargestRemainders) {
  const std::vector<Wide> thirds{10, 10, 10};
  EXPECT_THAT(shares_of(thirds, 3, 10), ElementsAre(4, 3, 3));
  const std::vector<Wide> mixed{-15, 27, 8};
  EXPECT_THAT(shares_of(mixed, 10, 2), ElementsAre(-2, 3, 1));
}

TEST(SharesOf, AddUpToTheTotalForRandomAmounts) {
  std::mt19937_64 random(1);
  for (int i = 0; i < 10'000; ++i) {
    const auto divisor = static_cast<std::int64_t>(random() % 1'000'000'007 + 1);
    std::vector<Wide> amounts;
    Wide sum = 0;
    for (std::size_t count = random() % 20 + 1; count > 0; --count) {
      amounts.push_back(static_cast<std::int64_t>(random() >> 16) - (std::int64_t{1} << 47));
      sum += amounts.back();
    }
    const std::int64_t total = rounded_ratio(sum, divisor);
    const std::vector<std::int64_t> shares = shares_of(amounts, divisor, total);
    ASSERT_EQ(std::accumulate(shares.begin(), shares.end(), std::int64_t{0}), total);
    for (std::size_t at = 0; at < shares.size(); ++at) {
      const Wide off = shares[at] * Wide{divisor} - amounts[at];
      ASSERT_TRUE(off > -divisor && off <= divisor);
    }
  }
}

}  // namespace
}  // namespace horo::tools
