// Runs the program of a tree on blocks of elements. The arithmetic is in the loops of a kernel; this part is the same
// for every element type, operation and instruction set.
//
// Inputs are processed in blocks that fit into the first-level cache: the canonical tree runs as a program on a small
// stack of accumulator blocks, so every input is read once and the output is written once, for any number of ranks.
#pragma once

#include <cstddef>

#include "ring/reduce/reduce.h"

namespace horo {

// The loops of a kernel for one element type and one operation. `count` is at most kKernelBlock; accumulators are
// aligned, inputs and outputs need not be. The two places of a loop are disjoint.
struct BlockLoops {
  std::size_t stored_bytes;       // of an element of the type
  std::size_t accumulator_bytes;  // of a partial result
  bool alike;                     // partial results have the element type
  void (*load)(std::byte* to, const std::byte* in, std::size_t count, double factor);
  void (*join)(std::byte* to, const std::byte* accumulators, std::size_t count);
  void (*join_input)(std::byte* to, const std::byte* in, std::size_t count);
  void (*store)(const std::byte* accumulators, std::byte* out, std::size_t count, const Scaling& scaling);
  // The accumulators of a regular tree over `inputs` unscaled inputs; null if the type has no vector form.
  void (*sum)(std::byte* to, const std::byte* const* in, int inputs, std::size_t count);
};

void run_blocks(const BlockLoops& loops, const TreeJob& job);

// Whether all inputs of a regular tree are read as they are: not scaled, and no partial results of another type.
bool is_regular_and_plain(const TreeJob& job, bool alike);

}  // namespace horo
