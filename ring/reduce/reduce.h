// The arithmetic of reductions, one loop per operation and type (DESIGN section 5). Pure: no I/O, no allocation in
// loops.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <vector>

#include "horo/base/types.h"
#include "ring/reduce/tree.h"

namespace horo {

struct CustomOp;

// The type in which sums are kept: float32 for 16- and 8-bit floats, else the type itself; always the type itself for
// an operation of the user's own.
DType accumulator_of(DType dtype, ReduceOp op = ReduceOp::kSum);

struct Scaling {
  double prescale = 1.0;
  double postscale = 1.0;
  double divisor = 1.0;
};

// An input of a tree: a buffer of the dtype, or of partial results in the accumulator type (which are not prescaled).
struct TreeInput {
  const std::byte* data = nullptr;
  bool partial = false;
};

// What is computed of the inputs; the divisor is applied by kAverage alone.
struct Reduction {
  DType dtype = DType::kFloat32;
  ReduceOp op = ReduceOp::kSum;
  Scaling scaling;
  bool to_partial = false;           // the result stays in the accumulator type, undivided and not scaled
  const CustomOp* custom = nullptr;  // of kCustom, which has no scaling
};

// out[i] = round(postscale * (T(prescale * widen(inputs[..][i])) / divisor)) for i < count. The tree's leaves are
// indices of `inputs`; out may be one of them, if it has the same type. Alignment: any. Integer scaling goes through
// float64 and truncates, saturating. NaN results are the canonical quiet NaN. Throws
// what a custom operation throws.
void reduce_tree(const Reduction& reduction, std::span<const TreeStep> tree, std::span<const TreeInput> inputs,
                 std::byte* out, std::size_t count);

// A reduction with all that it needs, for the kernels (ring/reduce/kernels.h).
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
using TreeRun = void (*)(const TreeJob&);

// What follows from a tree, for many reductions with it, which then need no memory. One thread.
class TreeReducer {
 public:
  explicit TreeReducer(std::vector<TreeStep> tree = {});
  // As reduce_tree(), to each of `outs` alike; each may be one of the inputs. No custom operation.
  void run(const Reduction& reduction, std::span<const TreeInput> inputs, std::span<std::byte* const> outs,
           std::size_t count);

  // The same in two steps: all that can be done before the inputs' bytes are there, and the rest. No input is partial.
  // What is asked for as it was the last time is ready at once.
  void prepare(const Reduction& reduction, std::span<const TreeInput> inputs, std::span<std::byte* const> outs,
               std::size_t count) {
    const bool is_ready = run_ != nullptr && is_prepared(reduction) && count == job_.count;
    if (!is_ready || outs.size() != job_.out_count) prepare_anew(reduction, inputs, outs, count);
    job_.inputs = inputs.data(), job_.outs = outs.data();
  }
  void run_prepared() const {
    if (run_ != nullptr) run_(job_);
  }

 private:
  // Bit for bit: -0 scales otherwise than 0.
  bool is_prepared(const Reduction& reduction) const {
    return reduction.dtype == prepared_.dtype && reduction.op == prepared_.op &&
           reduction.to_partial == prepared_.to_partial &&
           std::memcmp(&reduction.scaling, &prepared_.scaling, sizeof(Scaling)) == 0;
  }
  void prepare_anew(const Reduction& reduction, std::span<const TreeInput> inputs, std::span<std::byte* const> outs,
                    std::size_t count);

  std::vector<TreeStep> tree_;
  int regular_;  // as TreeJob has it
  std::vector<std::byte> stack_;
  Reduction prepared_;
  TreeRun run_ = nullptr;  // null: there is nothing to do
  TreeJob job_{};
};

// memcpy() of many bytes, with the widest vectors of this processor.
void copy_bytes(std::byte* to, const std::byte* from, std::size_t bytes);

}  // namespace horo
