// Tests a custom operation for its author, before a job depends on it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "horo/base/types.h"
#include "ring/reduce/custom_op.h"

namespace horo::tools {

// Writes `count` elements that the operation supports. The same seed must give the same elements.
using Filling = std::function<void(std::byte* values, std::uint64_t count, DType dtype, std::uint64_t seed)>;

struct OpTrial {
  std::vector<DType> dtypes;  // that the operation supports
  std::vector<std::uint64_t> counts = {1, 2, 17,
                                       1'000};  // elements, that it is for: square numbers for square matrices
  Filling fill = {};                            // empty: floats from -4 to 4, integers from 0 to 4
  double tolerance = 0.0;  // of results of float types in another order, relative to the largest number; 0: 16 units
};

// Tests, for every type and count:
//   - it returns 0, also for no elements, and then leaves its arguments unchanged;
//   - it writes only the accumulator, and reads nothing outside of its arguments;
//   - the same inputs give the same bits again, after other calls and at any address with the type's alignment;
//   - element-wise operations give the same for pieces as for the whole, and are associative within the tolerance;
//   - a sum over contributors has the bits of single calls in the order of the canonical tree.
// Returns one sentence for each type and count with a fault, the first fault found; empty: no fault. An exception of
// the operation is a fault.
std::vector<std::string> faults_of(const CustomOp& op, const OpTrial& trial);

}  // namespace horo::tools
