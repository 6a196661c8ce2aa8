// The arithmetic of reductions (docs/canonical_order.md). Pure: no I/O, and no allocation inside loops.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "horo/base/types.h"
#include "ring/reduce/tree.h"

namespace horo {

struct CustomOp;

// The bytes of an element of partial results. The average of integers has int64, and of 64-bit integers 128 bits; a
// custom operation has the type itself; for all others see accumulator_of().
std::size_t accumulator_bytes(DType dtype, ReduceOp op);
// The type of partial results of sums: float32 for 16- and 8-bit floats, else the type itself.
DType accumulator_of(DType dtype);

// The factors of a reduction.
struct Scaling {
  double prescale = 1.0;
  double postscale = 1.0;
  double divisor = 1.0;
};

// An input of a tree: elements of the dtype, or partial results in the accumulator type, which are not prescaled.
struct TreeInput {
  const std::byte* data = nullptr;
  bool partial = false;
};

// The computation of a reduction. The divisor applies to kAverage only.
struct Reduction {
  DType dtype = DType::kFloat32;
  ReduceOp op = ReduceOp::kSum;
  Scaling scaling;
  bool to_partial = false;           // the result is a partial result: in the accumulator type, not divided or scaled
  const CustomOp* custom = nullptr;  // of kCustom, which ignores scaling
};

// out[i] = round(postscale * (T(prescale * widen(inputs[..][i])) / divisor)) for i < count. The leaves of the tree are
// indices of `inputs`. `out` may be one of the inputs if both have the same type, else it is disjoint from them. Any
// alignment. Integers are scaled in float64, truncated and saturated; their average is exact. NaN results are the
// canonical quiet NaN. Throws std::runtime_error if a custom operation fails.
void reduce_tree(const Reduction& reduction, std::span<const TreeStep> tree, std::span<const TreeInput> inputs,
                 std::byte* out, std::size_t count);

// A reduction as the kernels take it (ring/reduce/kernels.h).
struct TreeJob {
  const TreeStep* tree;
  std::size_t steps;
  const TreeInput* inputs;
  std::byte* const* outs;  // all receive the result
  std::size_t out_count;
  std::size_t count;
  Scaling scaling;   // divisor 1 unless the operation is kAverage
  bool to_partial;   // as in Reduction
  int regular;       // regular_inputs(tree), or 0: the result is the same, but slower
  std::byte* stack;  // one block of the widest type per level of the tree, aligned for that type
};
using TreeRun = void (*)(const TreeJob&);

// Runs many reductions with one tree, without allocating. One thread.
class TreeReducer {
 public:
  explicit TreeReducer(std::vector<TreeStep> tree = {});
  // As reduce_tree(), with the result in each of `outs`, which may be inputs. No custom operation.
  void run(const Reduction& reduction, std::span<const TreeInput> inputs, std::span<std::byte* const> outs,
           std::size_t count);

  // The same in two steps: prepare() needs the addresses only and may be called before the inputs hold their values;
  // run_prepared() computes the result. No input is partial. A call with the reduction and count of the call before is
  // cheap. `inputs` and `outs` stay valid until run_prepared() returns.
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
  bool is_prepared(const Reduction& reduction) const {
    return reduction.dtype == prepared_.dtype && reduction.op == prepared_.op &&
           reduction.to_partial == prepared_.to_partial && has_equal_bits(reduction.scaling, prepared_.scaling);
  }
  // Compares bits, because 0 and -0 give different results.
  static bool has_equal_bits(const Scaling& a, const Scaling& b) {
    const auto bits = [](double value) { return std::bit_cast<std::uint64_t>(value); };
    return bits(a.prescale) == bits(b.prescale) && bits(a.postscale) == bits(b.postscale) &&
           bits(a.divisor) == bits(b.divisor);
  }
  void prepare_anew(const Reduction& reduction, std::span<const TreeInput> inputs, std::span<std::byte* const> outs,
                    std::size_t count);

  std::vector<TreeStep> tree_;
  int regular_;  // as in TreeJob
  std::vector<std::byte> stack_;
  Reduction prepared_;
  TreeRun run_ = nullptr;  // null: the tree or the count is empty
  TreeJob job_{};
};

// memcpy() for large copies, with the widest vectors of this processor.
void copy_bytes(std::byte* to, const std::byte* from, std::size_t bytes);

}  // namespace horo
