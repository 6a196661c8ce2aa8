// CudaApi::copy_rows() against memcpy().

#include <gtest/gtest.h>

#include <cstring>
#include <random>

#include "tests/ring/cuda/card.h"

namespace horo {
namespace {

using Row = std::vector<std::byte>;

struct PlacedRow {
  std::size_t from, to, bytes;
};

// Rows behind one another, with gaps of up to 15 bytes; lengths of all sizes up to a few chunks.
std::vector<PlacedRow> random_rows(std::size_t count, std::size_t step) {
  std::mt19937 random(3);
  std::vector<PlacedRow> rows;
  std::size_t from = 0, to = 0;
  for (std::size_t i = 0; i < count; ++i) {
    const std::size_t bytes = i % 50 == 7 ? 0 : step * (random() % (i % 10 == 0 ? 9'000 : 120));
    from += step * (random() % 16), to += step * (random() % 16);
    rows.push_back({from, to, bytes});
    from += bytes, to += bytes;
  }
  return rows;
}

class RowCopies : public test::OnEachTable {
 protected:
  // Rows from the first half of the memory to the second, and nothing beside them.
  void expect_copies(const std::vector<PlacedRow>& rows) {
    const std::size_t half = rows.back().from + rows.back().bytes + rows.back().to + 64;
    test::Card card(api(), 2 * half);
    Row from(half), expected(half, std::byte{0x5a});
    std::mt19937 random(4);
    for (auto& byte : from) byte = static_cast<std::byte>(random());
    card.write(0, from);
    card.write(half, expected);
    std::vector<CopyRow> copies;
    for (const PlacedRow& row : rows) {
      copies.push_back({card.memory() + row.from, card.memory() + half + row.to, row.bytes});
      std::memcpy(expected.data() + row.to, from.data() + row.from, row.bytes);
    }
    ASSERT_EQ(api().copy_rows(copies.data(), copies.size(), card.stream()), 0);
    copies.clear();  // they were copied at the call
    EXPECT_TRUE(card.read(half, half) == expected);
  }
};

TEST_P(RowCopies, TakeAThousandRowsOfOddSizes) {
  for (const std::size_t step : {1, 2, 4, 16}) expect_copies(random_rows(1'000, step));
}

TEST_P(RowCopies, TakeOneByteAndManyChunks) {
  expect_copies({{0, 0, 1}});
  expect_copies({{5, 5, 3'000'001}});
  expect_copies({{4, 9, 2'048}, {4'000, 3'000, 2'049}});
}

TEST_P(RowCopies, WithoutBytesDoNothing) {
  test::Card card(api(), 16);
  const CopyRow none{card.memory(), card.memory(), 0};
  EXPECT_EQ(api().copy_rows(&none, 1, card.stream()), 0);
  EXPECT_EQ(api().copy_rows(nullptr, 0, card.stream()), 0);
}

INSTANTIATE_TEST_SUITE_P(Kernels, RowCopies, testing::Values("fake", "plugin"));

}  // namespace
}  // namespace horo
