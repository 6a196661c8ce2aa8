// The loops of reduce.h once per instruction set; reduce.cc chooses when it first runs.
#pragma once

#include <cstddef>

#include "ring/reduce.h"

namespace horo {

// Elements that are worked on together: blocks of accumulators stay in the first-level cache.
inline constexpr std::size_t kKernelBlock = 1024;

struct TreeJob {
  const TreeStep* tree;
  std::size_t steps;
  const TreeInput* inputs;
  std::byte* out;
  std::size_t count;
  Scaling scaling;   // divisor 1 unless it is an average
  bool to_partial;   // see Reduction
  std::byte* stack;  // memory for as many blocks of the widest type as the tree is deep, aligned for it
};

struct Kernels {
  void (*reduce_tree)(DType, ReduceOp, const TreeJob&);
};

const Kernels& baseline_kernels();
// Null where this processor, or this build, has none.
const Kernels* avx2_kernels();

}  // namespace horo
