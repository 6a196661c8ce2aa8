#include "controller/bucketer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/controller/simulator.h"

namespace horo {
namespace {

using testing::ElementsAre;

std::vector<std::vector<std::size_t>> buckets_of(const std::vector<TensorSpec>& specs, std::size_t bucket_bytes,
                                                 std::size_t mixed_bytes = 0) {
  std::vector<Fusible> tensors;
  for (const TensorSpec& spec : specs) tensors.push_back({&spec});
  return make_buckets(tensors, {bucket_bytes, mixed_bytes, bucket_bytes});
}

TEST(Bucketer, FillsABucketUpToItsLimit) {
  const TensorSpec kib = gradient("a", {256});
  EXPECT_THAT(buckets_of({kib, kib, kib, kib, kib}, 2048),
              ElementsAre(ElementsAre(0, 1), ElementsAre(2, 3), ElementsAre(4)));
}

TEST(Bucketer, ATensorOfAnotherTypeClosesNoBucketAndBucketsKeepTheOrderOfTheirFirstTensors) {
  TensorSpec half = gradient("h");
  half.dtype = DType::kFloat16;
  const TensorSpec full = gradient("f");
  EXPECT_THAT(buckets_of({full, half, full, half}, 1 << 20), ElementsAre(ElementsAre(0, 2), ElementsAre(1, 3)));
}

TEST(Bucketer, ALargeTensorIsABucketOfItsOwnAndClosesNone) {
  const TensorSpec small = gradient("s", {4});
  const TensorSpec large = gradient("l", {1024});
  EXPECT_THAT(buckets_of({small, large, small}, 1024), ElementsAre(ElementsAre(0, 2), ElementsAre(1)));
}

TEST(Bucketer, WithZeroBucketBytesEveryTensorIsABucket) {
  const TensorSpec empty = gradient("e", {0});
  EXPECT_THAT(buckets_of({empty, empty}, 0), ElementsAre(ElementsAre(0), ElementsAre(1)));
}

TEST(Bucketer, ABucketOfDifferentPrioritiesHasALowerLimit) {
  std::vector<TensorSpec> specs(8, gradient("x", {256}));
  for (std::size_t i = 4; i < 8; ++i) specs[i].priority = static_cast<int>(i);
  EXPECT_THAT(buckets_of(specs, 4096, 2048),
              ElementsAre(ElementsAre(0, 1, 2, 3), ElementsAre(4, 5), ElementsAre(6, 7)));
  for (TensorSpec& spec : specs) spec.unit = "u";
  EXPECT_EQ(buckets_of(specs, 8192, 0).size(), 1U);
}

// Tensors of 1 KiB each.
std::vector<std::size_t> sizes_of_buckets(const std::vector<TensorSpec>& specs, const BucketLimits& limits) {
  std::vector<Fusible> tensors;
  for (const TensorSpec& spec : specs) tensors.push_back({&spec});
  std::vector<std::size_t> sizes;
  for (const auto& bucket : make_buckets(tensors, limits)) sizes.push_back(bucket.size());
  return sizes;
}

TEST(Bucketer, AStepIsCutIntoSixteenPartsUnlessTheyAreTooSmall) {
  constexpr std::size_t kKib = 1 << 10;
  const std::vector<TensorSpec> specs(64, gradient("x", {256}));
  EXPECT_EQ(sizes_of_buckets(specs, {64 * kKib, 0, 1 * kKib}), std::vector<std::size_t>(16, 4));
  EXPECT_EQ(sizes_of_buckets(specs, {64 * kKib, 0, 16 * kKib}), std::vector<std::size_t>(4, 16));
  EXPECT_EQ(sizes_of_buckets(specs, {2 * kKib, 0, 16 * kKib}), std::vector<std::size_t>(32, 2)) << "at most";
  EXPECT_EQ(sizes_of_buckets(specs, {64 * kKib, 0, 64 * kKib}), std::vector<std::size_t>(1, 64));
}

TEST(Bucketer, OnlyLikeTensorsCountAsAStep) {
  std::vector<TensorSpec> specs(64, gradient("x", {256}));
  for (std::size_t i = 0; i < 32; ++i) specs[i].dtype = DType::kInt32;
  specs.push_back(gradient("too large", {1 << 20}));
  std::vector<std::size_t> sizes(32, 2);
  sizes.push_back(1);
  EXPECT_EQ(sizes_of_buckets(specs, {64 << 10, 0, 1 << 10}), sizes);
}

TEST(Bucketer, AUnitIsNotCutIntoParts) {
  std::vector<TensorSpec> specs(64, gradient("x", {256}));
  for (TensorSpec& spec : specs) spec.unit = "u";
  EXPECT_THAT(sizes_of_buckets(specs, {64 << 10, 0, 1 << 10}), ElementsAre(64));
}

TEST(Bucketer, OnlyAllReducesAreFused) {
  TensorSpec gather = gradient("g");
  gather.kind = CollectiveKind::kAllGather;
  EXPECT_EQ(buckets_of({gather, gather}, 1 << 20).size(), 2U);
}

TEST(Bucketer, EachPropertyOfTheReductionSeparates) {
  std::vector<TensorSpec> specs(10, gradient("x"));
  specs[1].set = 1;
  specs[2].channel = 1;
  specs[3].dtype = DType::kInt32;
  specs[4].op = ReduceOp::kMax;
  specs[5].order = Order::kFast;
  specs[6].prescale = 0.5;
  specs[7].postscale = 0.5;
  specs[8].codec = "int8";
  specs[9].unit = "u";
  EXPECT_EQ(buckets_of(specs, 1 << 20).size(), 10U);
}

TEST(Bucketer, TensorsOfOneCodecOrOneUnitShareABucket) {
  std::vector<TensorSpec> specs(4, gradient("x"));
  specs[0].codec = specs[2].codec = "int8";
  specs[1].unit = specs[3].unit = "u";
  EXPECT_THAT(buckets_of(specs, 1 << 20), ElementsAre(ElementsAre(0, 2), ElementsAre(1, 3)));
}

TEST(Bucketer, ATensorWithACustomOperationIsABucketOfItsOwn) {
  TensorSpec custom = gradient("c");
  custom.custom_op = "mine";
  EXPECT_EQ(buckets_of({custom, custom}, 1 << 20).size(), 2U);
}

TEST(Bucketer, OnlyTensorsOfTheSameRanksAreFused) {
  const TensorSpec spec = gradient("x");
  const std::vector<Fusible> tensors = {{&spec, {0, 1}}, {&spec}, {&spec, {0, 1}}};
  EXPECT_THAT(make_buckets(tensors, {1 << 20, 0, 1 << 20}), ElementsAre(ElementsAre(0, 2), ElementsAre(1)));
}

TEST(Bucketer, NoTensorsMakeNoBuckets) {
  EXPECT_TRUE(buckets_of({}, 1024).empty());
}

}  // namespace
}  // namespace horo
