#include "ring/algorithms/shm/arrival_flag.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

namespace horo {
namespace {

TEST(ArrivalFlag, ALoadedFlagHasTheSyncPointAndSignatureThatWereStored) {
  ArrivalFlag flag{};
  EXPECT_EQ(load_flag(flag), 0u);
  const SyncSignature signature{1, 2, 3, 4};
  store_flag(flag, 7, signature);
  EXPECT_EQ(load_flag(flag), 7u);
  EXPECT_EQ(load_signature(flag), signature);
}

TEST(ArrivalFlag, APrefetchKeepsTheFlagAndItsPayload) {
  ArrivalFlag flag{};
  flag.offsets = {11, 12};
  store_flag(flag, 7, {1, 2, 3, 4});
  prefetch_flag(flag, 7);
  EXPECT_EQ(load_flag(flag), 7u);
  EXPECT_TRUE(flag.offsets.in == 11 && flag.offsets.out == 12);
}

TEST(ArrivalFlag, PrefetchOfLinesStaysWithinTheMemory) {
  std::vector<std::byte> memory(130, std::byte{1});
  prefetch_lines(memory.data(), 65);
  EXPECT_EQ(std::count(memory.begin(), memory.end(), std::byte{0}), 2);
  EXPECT_TRUE(memory[0] == std::byte{0} && memory[64] == std::byte{0});
}

TEST(ArrivalFlag, EagerPollsEndWhenTheConditionIsMetOrAfterTheirNumber) {
  int polls = 0;
  EXPECT_TRUE(poll_eagerly(8, [&] { return ++polls == 3; }));
  EXPECT_EQ(polls, 3);
  EXPECT_FALSE(poll_eagerly(8, [&] { return ++polls < 0; }));
  EXPECT_EQ(polls, 11);
}

TEST(SyncSignature, AShapeHasTheKindAndDiffersByTypeOperationAndHash) {
  const auto kind = CollectiveKind::kAllGather;
  const auto shape = signature_shape(kind, DType::kInt32, ReduceOp::kMax, std::uint64_t{5} << 40);
  EXPECT_EQ(kind_in_shape(shape), static_cast<int>(kind));
  EXPECT_NE(shape, signature_shape(kind, DType::kInt64, ReduceOp::kMax, std::uint64_t{5} << 40));
  EXPECT_NE(shape, signature_shape(kind, DType::kInt32, ReduceOp::kMin, std::uint64_t{5} << 40));
  EXPECT_NE(shape, signature_shape(kind, DType::kInt32, ReduceOp::kMax, std::uint64_t{6} << 40));
}

}  // namespace
}  // namespace horo
