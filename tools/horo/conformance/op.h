// What is wrong with an operation of the user's own, found by trying it: for its author, before a job depends on it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "horo/base/types.h"
#include "ring/reduce/custom_op.h"

namespace horo::tools {

// Writes `count` elements that the operation is for. The same seed has to give the same.
using Filling = std::function<void(std::byte* values, std::uint64_t count, DType dtype, std::uint64_t seed)>;

struct OpTrial {
  std::vector<DType> dtypes;  // that it is for
  std::vector<std::uint64_t> counts = {1, 2, 17,
                                       1'000};  // elements, that it is for: square numbers for square matrices
  Filling fill = {};                            // empty: floats from -4 to 4, integers from 0 to 4
  double tolerance = 0.0;  // of results of float types in another order, relative to the largest number; 0: 16 units
};

// Tries, for every type and count:
//   - it returns 0, also for no elements, which are left alone;
//   - it writes the accumulator alone, and reads nothing outside of what it is given;
//   - the same inputs give the same bits again, after others and at any address where the type may lie;
//   - element-wise ones give the same for pieces as for the whole, and are associative, within the tolerance;
//   - a sum over contributors has the bits of the calls in the order of the canonical tree.
// One sentence for each type and count at which there is a fault, the first one found; empty: there is none. What the
// operation throws is a fault.
std::vector<std::string> faults_of(const CustomOp& op, const OpTrial& trial);

}  // namespace horo::tools
