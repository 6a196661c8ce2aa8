// A small part of the table of bits; `prove bits` makes the whole table.

#include "tests/proof/bits.h"

#include <gtest/gtest.h>

#include "tests/effort.h"

namespace horo::proof {
namespace {

BitOptions small() {
  BitOptions options;
  options.sizes = test::kSanitized ? std::vector{3} : std::vector{3, 8};
  options.types = {DType::kFloat32, DType::kBFloat16};
  options.segments = {500, 256 << 10};
  options.offsets = {1};
  options.repetitions = 1;
  options.elements = 701;
  return options;
}

TEST(Bits, AreEqualForEveryCanonicalAlgorithmWireAndSegmentSize) {
  const BitOptions options = small();
  const BitTable table = bit_table(options);
  EXPECT_TRUE(table.wrong.empty()) << table.wrong.front() << "\n" << print(table, options);
  EXPECT_GE(table.rows.size(), 8 * options.sizes.size());
}

TEST(Bits, DifferForOtherOrders) {
  BitOptions options = small();
  options.sizes = {8};
  options.wires = {test::Wire::kInProcess};
  std::set<std::string> canonical, others;
  for (const BitRow& row : bit_table(options).rows) {
    (row.canonical ? canonical : others).merge(std::set<std::string>(row.hashes.at(DType::kFloat32)));
  }
  ASSERT_FALSE(others.empty());
  for (const std::string& hash : others)
    EXPECT_FALSE(canonical.contains(hash)) << "the values do not distinguish orders";
}

}  // namespace
}  // namespace horo::proof
