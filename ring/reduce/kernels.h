// The loops of reduce.h once per instruction set; HORO_KERNELS chooses.
#pragma once

#include <cstddef>
#include <span>
#include <string_view>
#include <vector>

#include "ring/reduce/reduce.h"

namespace horo {

// Elements that are worked on together: blocks of accumulators stay in the first-level cache.
inline constexpr std::size_t kKernelBlock = 1024;

// The trees of contributors 0, 1 .., that are summed in registers, the largest first, as their programs: a dot pushes
// an input, the next one each time, a j joins.
struct RegularTree {
  int inputs;
  const char* program;
};
inline constexpr RegularTree kRegularTrees[] = {{8, "..j..jj..j..jjj"}, {4, "..j..jj"}, {3, "..j.j"}, {2, "..j"}};
// Inputs of the one that this tree is; 0: it is none.
int regular_inputs(std::span<const TreeStep> tree);

struct Kernels {
  const char* name;                                      // as HORO_KERNELS has it
  TreeRun (*tree_run)(DType, ReduceOp, const TreeJob&);  // what runs this job, or one that has other places alone
  void (*copy)(std::byte* to, const std::byte* from, std::size_t bytes);

  void reduce_tree(DType dtype, ReduceOp op, const TreeJob& job) const { tree_run(dtype, op, job)(job); }
};

// One element at a time, for every processor; what all others are compared with.
const Kernels& scalar_kernels();
// The vectors that every processor of this architecture has.
const Kernels& baseline_kernels();
// Null where this processor, or this build, has none.
const Kernels* avx2_kernels();
const Kernels* avx512_kernels();

// Those that this processor has, the best one last.
std::vector<const Kernels*> all_kernels();
// Those that HORO_KERNELS names. Throws std::invalid_argument where this processor, or this build, has none of that
// name.
const Kernels& kernels_for(std::string_view wish);
// The same for the environment of this process, which is asked once.
const Kernels& kernels_in_use();

}  // namespace horo
