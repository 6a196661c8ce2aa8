// Pattern: what a benchmark reduces, and what must come out: small whole numbers that are exact in every element type
// and repeat, so that whole blocks can be written and compared at memory speed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "horo/base/types.h"

namespace horo {

class Pattern {
 public:
  // Throws std::invalid_argument where sums over so many ranks are not exact in the type, or it has no numbers.
  Pattern(DType dtype, int ranks);

  // The input of a rank in a round.
  void fill(std::span<std::byte> buffer, int rank, int round) const;
  // How many elements of a result of that round are not the sum over all ranks.
  std::size_t count_wrong(std::span<const std::byte> result, int round) const;

 private:
  std::vector<std::byte> block_of(const std::vector<int>& values) const;

  const DType dtype_;
  const int ranks_;
};

}  // namespace horo
