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

TEST(Texts, ManyRangesOfRanksAreCut) {
  std::vector<int> odd;
  for (int rank = 1; rank < 20'000; rank += 2) odd.push_back(rank);
  const std::string text = ranks_text(odd);
  EXPECT_THAT(text, StartsWith("ranks 1, 3, 5, 7, "));
  EXPECT_THAT(text, HasSubstr(" and 9984 more"));
}

TEST(Texts, AMismatchNamesTheRanksOfEachValue) {
  const TensorSpec a = gradient("conv1.weight", {2, 3});
  const TensorSpec b = gradient("conv1.weight", {3, 2});
  EXPECT_THAT(mismatch_text({{&a, {0, 2, 3, 4, 5}}, {&b, {1}}}),
              StartsWith("all_reduce of tensor 'conv1.weight': ranks disagree: shape [2, 3] on ranks 0, 2-5; "
                         "shape [3, 2] on rank 1. Nothing was changed"));
}

TEST(Texts, RanksAreGroupedByTheFirstDifference) {
  TensorSpec a = gradient("x", {1});
  TensorSpec b = gradient("x", {2});
  TensorSpec c = gradient("x", {2});
  c.dtype = DType::kInt32;
  EXPECT_THAT(mismatch_text({{&c, {1}}, {&b, {2}}, {&a, {0}}}), HasSubstr("float32 on ranks 0, 2; int32 on rank 1."));
}

TEST(Texts, DifferentRootsOfAnAllReduceAreNoMismatch) {
  TensorSpec a = gradient("x");
  TensorSpec b = gradient("x");
  b.root = 1;
  b.postscale = 0.1;
  EXPECT_THAT(mismatch_text({{&a, {0}}, {&b, {1}}}), HasSubstr(": postscale 1 on rank 0; postscale 0.1 on rank 1."));
}

TEST(Texts, AScaleOfNaNIsNamed) {
  TensorSpec a = gradient("x");
  a.prescale = std::numeric_limits<double>::quiet_NaN();
  EXPECT_THAT(mismatch_text({{&a, {0}}, {&a, {1}}}), HasSubstr("NaN"));
}

TEST(Texts, AMismatchOfUnnamedCallsExplainsTheMatchingByOrder) {
  TensorSpec a = gradient("all_reduce#7", {2});
  a.once = true;
  TensorSpec b = a;
  b.shape = {3};
  const std::string text = mismatch_text({{&a, {0}}, {&b, {1}}});
  EXPECT_THAT(text, HasSubstr("'all_reduce#7': ranks disagree: shape [2] on rank 0; shape [3] on rank 1."));
  EXPECT_THAT(text, HasSubstr("matched by their order"));
  EXPECT_THAT(text, HasSubstr("with names (name=...)"));
}

TEST(Texts, ARankThatLeftIsNamed) {
  EXPECT_THAT(
      left_text("x", {2}),
      StartsWith("tensor 'x': rank 2 has left (horo.shutdown, or the end of the program) and will not submit it."));
  EXPECT_THAT(left_text("x", {2, 3, 0}), HasSubstr("and will not submit it, nor will ranks 0, 3, which left later."));
}

}  // namespace
}  // namespace horo
