// Custom reduce operations: functions of the user that combine two tensors.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>

#include "horo/base/types.h"
#include "ring/reduce/reduce.h"

namespace horo {

// Sets accumulator to op(accumulator, value) for `count` elements, count > 0. Both have the type `dtype` and its
// alignment, and do not overlap. The accumulator holds the lower contributor ids. `value` must not be written. Values
// are combined in the canonical tree, in the type itself and unscaled, so an operation need not be commutative. It is
// called in the engine's threads, for several tensors concurrently. The same inputs must give the same bits on every
// rank. Returns 0; any other value, or an exception, ends the job.
using Combining = std::function<int(std::byte* accumulator, const std::byte* value, std::uint64_t count, DType dtype)>;

struct CustomOp {
  std::string name;
  // True: combine needs whole tensors, also in a reduce_scatter. False: it is element-wise and is called with any
  // pieces.
  bool whole = false;
  Combining combine;
};

// Throws std::invalid_argument if the name or combine is missing.
void check(const CustomOp& op);

// reduce_tree() for kCustom. Throws std::runtime_error that names the operation if it fails.
void reduce_custom(const Reduction& reduction, std::span<const TreeStep> tree, std::span<const TreeInput> inputs,
                   std::byte* out, std::size_t count);

}  // namespace horo
