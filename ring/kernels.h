// The loops of reduce.h once per instruction set; HORO_KERNELS chooses.
#pragma once

#include <cstddef>
#include <span>
#include <string_view>
#include <vector>

#include "ring/reduce.h"

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

struct TreeJob {
  const TreeStep* tree;
  std::size_t steps;
  const TreeInput* inputs;
  std::byte* const* outs;  // the first is the result's place, the others get copies
  std::size_t out_count;
  std::size_t count;
  Scaling scaling;   // divisor 1 unless it is an average
  bool to_partial;   // see Reduction
  int regular;       // regular_inputs(tree), or 0, with which the same result takes longer
  std::byte* stack;  // memory for as many blocks of the widest type as the tree is deep, aligned for it
};

struct Kernels {
  const char* name;  // as HORO_KERNELS has it
  void (*reduce_tree)(DType, ReduceOp, const TreeJob&);
  void (*copy)(std::byte* to, const std::byte* from, std::size_t bytes);
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
