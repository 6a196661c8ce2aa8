// The kernels of each instruction set. HORO_KERNELS chooses one.
#pragma once

#include <cstddef>
#include <span>
#include <string_view>
#include <vector>

#include "ring/reduce/reduce.h"

namespace horo {

// Elements of a block. The blocks of accumulators fit into the first-level cache.
inline constexpr std::size_t kKernelBlock = 1024;

// The trees over contributors 0, 1 ... that are summed in registers, the largest first. In a program a dot pushes the
// next input and a j joins.
struct RegularTree {
  int inputs;
  const char* program;
};
inline constexpr RegularTree kRegularTrees[] = {{8, "..j..jj..j..jjj"}, {4, "..j..jj"}, {3, "..j.j"}, {2, "..j"}};
// The number of inputs if the tree is a regular tree, else 0.
int regular_inputs(std::span<const TreeStep> tree);

// The average of an integer type, for every processor.
TreeRun integer_average(DType dtype);

struct Kernels {
  const char* name;  // in HORO_KERNELS
  // The function that runs this job, and jobs that differ from it in their addresses only; not of an integer average.
  TreeRun (*tree_run)(DType, ReduceOp, const TreeJob&);
  void (*copy)(std::byte* to, const std::byte* from, std::size_t bytes);

  TreeRun run_of(DType dtype, ReduceOp op, const TreeJob& job) const {
    return op == ReduceOp::kAverage && is_integer(dtype) ? integer_average(dtype) : tree_run(dtype, op, job);
  }
  void reduce_tree(DType dtype, ReduceOp op, const TreeJob& job) const { run_of(dtype, op, job)(job); }
};

// Kernels that process one element at a time, for every processor: the reference for the other kernels.
const Kernels& scalar_kernels();
// Kernels with the vectors that every processor of this architecture has.
const Kernels& baseline_kernels();
// Kernels for AVX2 and AVX-512; null if the processor or the build does not support them.
const Kernels* avx2_kernels();
const Kernels* avx512_kernels();

// The kernels that this processor supports, the fastest one last.
std::vector<const Kernels*> all_kernels();
// The kernels of this value of HORO_KERNELS. Throws std::invalid_argument if the processor or the build does not
// support them.
const Kernels& kernels_for(std::string_view name);
// The kernels that the environment of this process selects. The environment is read once.
const Kernels& kernels_in_use();

}  // namespace horo
