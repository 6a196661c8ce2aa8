#include "controller/texts.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

#include "tests/controller/simulator.h"

namespace horo {
namespace {

using testing::HasSubstr;
using testing::StartsWith;

TEST(Texts, RanksInARowAreARange) {
  EXPECT_EQ(ranks_text({3}), "rank 3");
  EXPECT_EQ(ranks_text({0, 1}), "ranks 0, 1");
  EXPECT_EQ(ranks_text({0, 2, 3, 4, 5, 9}), "ranks 0, 2-5, 9");
}

TEST(Texts, AMismatchSaysWhoSaidWhat) {
  const TensorSpec a = gradient("conv1.weight", {2, 3});
  const TensorSpec b = gradient("conv1.weight", {3, 2});
  EXPECT_THAT(mismatch_text({{&a, {0, 2, 3, 4, 5}}, {&b, {1}}}),
              StartsWith("all_reduce of tensor 'conv1.weight': ranks disagree: shape [2, 3] on ranks 0, 2-5; "
                         "shape [3, 2] on rank 1. Nothing was changed"));
}

TEST(Texts, RanksThatDifferInMoreAreGroupedByTheFirstDifference) {
  TensorSpec a = gradient("x", {1});
  TensorSpec b = gradient("x", {2});
  TensorSpec c = gradient("x", {2});
  c.dtype = DType::kInt32;
  EXPECT_THAT(mismatch_text({{&c, {1}}, {&b, {2}}, {&a, {0}}}), HasSubstr("float32 on ranks 0, 2; int32 on rank 1."));
}

TEST(Texts, TheRootOfAnAllReduceIsNoDifference) {
  TensorSpec a = gradient("x");
  TensorSpec b = gradient("x");
  b.root = 1;
  b.postscale = 0.1;
  EXPECT_THAT(mismatch_text({{&a, {0}}, {&b, {1}}}), HasSubstr(": postscale 1 on rank 0; postscale 0.1 on rank 1."));
}

TEST(Texts, AScaleThatIsNoNumberIsSaidToBeNone) {
  TensorSpec a = gradient("x");
  a.prescale = std::numeric_limits<double>::quiet_NaN();
  EXPECT_THAT(mismatch_text({{&a, {0}}, {&a, {1}}}), HasSubstr("NaN"));
}

TEST(Texts, AStallNamesTheRanksAndTheSetting) {
  const std::string text = stall_text(gradient("x", {4}), {0, 1}, {2, 3}, std::chrono::milliseconds(250));
  EXPECT_THAT(text, StartsWith("all_reduce average float32 [4] of tensor 'x': submitted by ranks 0, 1, but not by "
                               "ranks 2, 3 within 250 ms (HORO_STALL_LIMIT_MS)."));
}

TEST(Texts, ARankThatLeftIsNamed) {
  EXPECT_EQ(left_text("x", {2}), "rank 2 has left (horo.shutdown) and will not submit 'x'");
}

}  // namespace
}  // namespace horo
