#include "tools/horo/bench/fit.h"

#include <gtest/gtest.h>

namespace horo::tools {
namespace {

TEST(BenchFit, ALineIsFound) {
  const Fit fit = fit_of({{8, 1e-5 + 8e-9}, {1024, 1e-5 + 1024e-9}, {1 << 20, 1e-5 + (1 << 20) * 1e-9}});
  EXPECT_NEAR(fit.alpha_s, 1e-5, 1e-12);
  EXPECT_NEAR(fit.beta_s_per_byte, 1e-9, 1e-15);
  EXPECT_NEAR(fit.seconds(1000), 1.1e-5, 1e-11);
}

TEST(BenchFit, SmallMessagesCountAsMuchAsLargeOnes) {
  const Fit fit = fit_of({{8, 1e-5}, {16, 1e-5}, {16 << 20, 0.016}, {32 << 20, 0.033}});
  EXPECT_NEAR(fit.alpha_s, 1e-5, 1e-7) << "a millisecond off at 32 MiB does not move what 8 bytes take";
}

}  // namespace
}  // namespace horo::tools
