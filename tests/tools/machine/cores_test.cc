// The division of cores among ranks, and their text.
#include "tools/horo/machine/cores.h"

#include <gtest/gtest.h>

namespace horo::tools {
namespace {

using Shares = std::vector<std::vector<int>>;

TEST(Cores, AreSharedEvenlyAndInOrder) {
  EXPECT_EQ(split_cores({0, 1, 2, 3}, 2), (Shares{{0, 1}, {2, 3}}));
  EXPECT_EQ(split_cores({0, 4, 1, 5, 2}, 2), (Shares{{0, 4, 1}, {5, 2}}));
  EXPECT_EQ(split_cores({7}, 1), (Shares{{7}}));
}

TEST(Cores, EveryRankHasSomeAndNoCoreIsSharedOrIdle) {
  for (int ranks = 1; ranks <= 12; ++ranks) {
    std::vector<int> cores, seen;
    for (int core = 0; core < 12; ++core) cores.push_back(core);
    for (const auto& share : split_cores(cores, ranks)) {
      EXPECT_FALSE(share.empty());
      seen.insert(seen.end(), share.begin(), share.end());
    }
    EXPECT_EQ(seen, cores) << ranks;
  }
}

TEST(Cores, TextHasRanges) {
  EXPECT_EQ(cores_text({0, 1, 2, 3, 8}), "0-3,8");
  EXPECT_EQ(cores_text({5, 4, 9}), "4-5,9");
  EXPECT_EQ(cores_text({}), "");
}

TEST(Cores, NoMoreAreGrantedThanAreAllowed) {
  EXPECT_GE(granted_cores(), 1);
  EXPECT_LE(granted_cores(), usable_cores());
  EXPECT_EQ(static_cast<int>(allowed_cores().size()), usable_cores());
}

}  // namespace
}  // namespace horo::tools
