// Operations of the user's own: what combines two tensors where none of the built-in ones will do.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>

#include "horo/base/types.h"
#include "ring/reduce/reduce.h"

namespace horo {

// accumulator = accumulator o value for `count` elements, count > 0. The two are `accumulator` and `value` of the same
// type, each aligned to its size, and never overlap; the accumulator stands for the lower contributor ids, and `value`
// is not to be written. Everything is combined in the canonical tree, in the type itself and unscaled, so an operation
// need not commute. It is called in the threads of the engine, for several tensors at once; the same inputs have to
// give the same bits on every rank. Anything but 0, or an exception, ends the job.
using Combining = std::function<int(std::byte* accumulator, const std::byte* value, std::uint64_t count, DType dtype)>;

struct CustomOp {
  std::string name;
  // True: combine needs whole tensors (of a reduce_scatter too). False: it is element-wise, and is given any pieces.
  bool whole = false;
  Combining combine;
};

// Throws std::invalid_argument, naming it, if there is something that an operation cannot do without.
void check(const CustomOp& op);

// reduce_tree() with an operation of the user's own. Throws std::runtime_error naming the operation if it fails.
void reduce_custom(const Reduction& reduction, std::span<const TreeStep> tree, std::span<const TreeInput> inputs,
                   std::byte* out, std::size_t count);

}  // namespace horo
