#include "horo/base/types.h"

#include <gtest/gtest.h>

#include <set>
#include <string>

namespace horo {
namespace {

TEST(Types, NumbersOfTheAbiNeverChange) {
  EXPECT_EQ(name_of(*dtype_from(0)), "uint8");
  EXPECT_EQ(name_of(*dtype_from(7)), "float32");
  EXPECT_EQ(name_of(*dtype_from(10)), "bfloat16");
  EXPECT_EQ(name_of(*dtype_from(2)), "uint16");
  EXPECT_EQ(name_of(*dtype_from(11)), "float8_e4m3");
  EXPECT_EQ(name_of(*dtype_from(16)), "complex128");
  EXPECT_EQ(name_of(*reduce_op_from(0)), "average");
  EXPECT_EQ(name_of(*reduce_op_from(2)), "adasum");
  EXPECT_EQ(name_of(*reduce_op_from(5)), "product");
  EXPECT_EQ(name_of(*reduce_op_from(8)), "bit_xor");
  EXPECT_EQ(name_of(*reduce_op_from(9)), "custom");
  EXPECT_EQ(name_of(*collective_kind_from(6)), "reduce_scatter");
  EXPECT_EQ(name_of(*order_from(1)), "fast");
}

TEST(Types, NumbersOutsideTheEnumerationsAreNothing) {
  for (const int number : {-1, 17, 255, 256, 1 << 30}) EXPECT_FALSE(dtype_from(number)) << number;
  for (const int number : {-1, 10, 256}) EXPECT_FALSE(reduce_op_from(number)) << number;
  for (const int number : {-1, 3, 15, 256}) EXPECT_FALSE(collective_kind_from(number)) << number;
  for (const int number : {-1, 2, 256}) EXPECT_FALSE(order_from(number)) << number;
}

TEST(Types, EveryDTypeHasItsOwnNameAndASize) {
  std::set<std::string_view> names;
  for (int number = 0; number < 256; ++number) {
    const auto dtype = dtype_from(number);
    if (!dtype) continue;
    EXPECT_EQ(static_cast<int>(*dtype), number);
    EXPECT_TRUE(names.insert(name_of(*dtype)).second);
    EXPECT_TRUE(std::set<std::size_t>({1, 2, 4, 8, 16}).contains(size_of(*dtype)));
  }
  EXPECT_EQ(names.size(), 17U);
}

// The operations that each type refuses; the letters of average, sum, adasum, min, max, product, and, or, xor, custom.
TEST(Types, EachTypeHasItsOperations) {
  const std::string letters = "asdmMp&|^c";
  for (int number = 0; number <= 16; ++number) {
    const DType dtype = *dtype_from(number);
    std::string has;
    for (int op = 0; op < 10; ++op) {
      if (reduce_op_from(op) && supports(dtype, *reduce_op_from(op))) has += letters[static_cast<std::size_t>(op)];
    }
    EXPECT_EQ(has, dtype == DType::kBool ? "smMp&|^c"
                   : is_integer(dtype)   ? "asmMp&|^c"
                   : is_complex(dtype)   ? "aspc"
                   : size_of(dtype) == 1 ? "asmMpc"
                                         : "asdmMpc")
        << name_of(dtype);
  }
}

TEST(Types, IntegersAreEight) {
  int integers = 0;
  for (int number = 0; number <= 16; ++number) integers += is_integer(*dtype_from(number)) ? 1 : 0;
  EXPECT_EQ(integers, 8);
  EXPECT_FALSE(is_integer(DType::kBool));
}

}  // namespace
}  // namespace horo
