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
  const std::byte* const* inputs;
  std::byte* out;
  std::size_t count;
  Scaling scaling;   // divisor 1 unless it is an average
  std::byte* stack;  // memory for as many blocks of the widest type as the tree is deep, aligned for it
};

struct Kernels {
  void (*reduce_tree)(DType, ReduceOp, const TreeJob&);
  void (*widen)(DType, const std::byte* in, std::byte* accumulator, std::size_t count, double prescale);
  void (*combine)(DType, ReduceOp, std::byte* a, const std::byte* b, std::size_t count);
  void (*narrow)(DType, const std::byte* accumulator, std::byte* out, std::size_t count, const Scaling& scaling);
};

const Kernels& baseline_kernels();
// Null where this processor, or this build, has none.
const Kernels* avx2_kernels();

}  // namespace horo
