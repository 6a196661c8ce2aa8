#include "horo/base/types.h"

#include <gtest/gtest.h>

#include <set>

namespace horo {
namespace {

TEST(Types, NumbersOfTheAbiNeverChange) {
  EXPECT_EQ(name_of(*dtype_from(0)), "uint8");
  EXPECT_EQ(name_of(*dtype_from(7)), "float32");
  EXPECT_EQ(name_of(*dtype_from(10)), "bfloat16");
  EXPECT_EQ(name_of(*reduce_op_from(0)), "average");
  EXPECT_EQ(name_of(*reduce_op_from(5)), "product");
  EXPECT_EQ(name_of(*collective_kind_from(6)), "reduce_scatter");
  EXPECT_EQ(name_of(*order_from(1)), "fast");
}

TEST(Types, NumbersOutsideTheEnumerationsAreNothing) {
  for (const int number : {-1, 2, 3, 11, 255, 256, 1 << 30}) EXPECT_FALSE(dtype_from(number)) << number;
  for (const int number : {-1, 2, 6, 256}) EXPECT_FALSE(reduce_op_from(number)) << number;
  for (const int number : {-1, 3, 14, 256}) EXPECT_FALSE(collective_kind_from(number)) << number;
  for (const int number : {-1, 2, 256}) EXPECT_FALSE(order_from(number)) << number;
}

TEST(Types, EveryDTypeHasItsOwnNameAndASize) {
  std::set<std::string_view> names;
  for (int number = 0; number < 256; ++number) {
    const auto dtype = dtype_from(number);
    if (!dtype) continue;
    EXPECT_EQ(static_cast<int>(*dtype), number);
    EXPECT_TRUE(names.insert(name_of(*dtype)).second);
    EXPECT_TRUE(std::set<std::size_t>({1, 2, 4, 8}).contains(size_of(*dtype)));
  }
  EXPECT_EQ(names.size(), 9U);
}

TEST(Types, OnlyTheAverageOfBoolIsRefused) {
  EXPECT_FALSE(supports(DType::kBool, ReduceOp::kAverage));
  EXPECT_TRUE(supports(DType::kBool, ReduceOp::kSum));
  EXPECT_TRUE(supports(DType::kInt8, ReduceOp::kAverage));
  EXPECT_TRUE(supports(DType::kBFloat16, ReduceOp::kProduct));
}

}  // namespace
}  // namespace horo
