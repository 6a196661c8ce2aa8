#include "horo/base/check.h"

#include <gtest/gtest.h>

#include <csignal>
#include <string>

namespace horo {
namespace {

class CheckDeathTest : public testing::Test {
 protected:
  CheckDeathTest() { testing::FLAGS_gtest_death_test_style = "threadsafe"; }
};

TEST_F(CheckDeathTest, AFalseClaimAbortsWithRankEpochFileAndLine) {
  EXPECT_EXIT(
      {
        set_check_context(2, 4, 7);
        HORO_CHECK(1 + 1 == 3);
      },
      testing::KilledBySignal(SIGABRT), "check_test.cc:[0-9]+ \\(rank 2 of 4, epoch 7\\): 1 \\+ 1 == 3");
}

TEST_F(CheckDeathTest, BeforeASessionItSaysSo) {
  EXPECT_DEATH(HORO_CHECK(false), "no session yet");
}

TEST_F(CheckDeathTest, AClaimLongerThanTheMessageIsCut) {
  const std::string claim(5000, 'x');
  EXPECT_DEATH(check_failed(claim.c_str(), "file.cc", 1), "file.cc:1 .*xxx");
}

TEST(Check, ATrueClaimIsEvaluatedOnce) {
  int evaluated = 0;
  HORO_CHECK(++evaluated == 1);
  EXPECT_EQ(evaluated, 1);
}

}  // namespace
}  // namespace horo
