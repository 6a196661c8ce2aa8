// Pattern: the inputs and expected results of a benchmark: small whole numbers that are exact in every element type.
// They repeat, so that whole blocks can be written and compared at memory speed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "horo/base/types.h"

namespace horo::tools {

class Pattern {
 public:
  // Throws std::invalid_argument if sums over `ranks` ranks are not exact in the type.
  Pattern(DType dtype, int ranks);

  // The input of a rank in a round.
  void fill(std::span<std::byte> buffer, int rank, int round) const;
  // The number of elements in a result of that round that differ from the sum over all ranks, or from the input of
  // `rank`.
  std::size_t count_wrong(std::span<const std::byte> result, int round) const;
  std::size_t count_wrong_copy(std::span<const std::byte> result, int rank, int round) const;

  static constexpr std::size_t kPeriod = 13;  // elements; prime, so that shards begin at different values

 private:
  std::size_t count_other(std::span<const std::byte> result, const std::vector<int>& values) const;
  std::vector<std::byte> block_of(const std::vector<int>& values) const;

  const DType dtype_;
  const int ranks_;
};

}  // namespace horo::tools
