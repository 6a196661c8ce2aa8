// Prepares reductions and passes them to the kernels. The loops are in reduce_kernels.h, which is compiled once per
// instruction set. All instruction sets give the same bits.

#include "ring/reduce/reduce.h"

#include <algorithm>
#include <bit>
#include <cstdint>
#include <memory>

#include "horo/base/check.h"
#include "ring/reduce/custom_op.h"
#include "ring/reduce/kernels.h"

namespace horo {
namespace {

constexpr std::size_t kWidestBytes = 16;

std::size_t stack_depth(std::span<const TreeStep> tree) {
  std::size_t depth = 0, most = 0;
  for (const TreeStep& step : tree) {
    depth += step.input == TreeStep::kJoin ? std::size_t(-1) : std::size_t{1};
    most = std::max(most, depth);
  }
  return most;
}

std::size_t stack_bytes(std::span<const TreeStep> tree) {
  return stack_depth(tree) * kKernelBlock * kWidestBytes;
}

bool is_regular(std::span<const TreeStep> tree, const RegularTree& regular) {
  if (tree.size() != static_cast<std::size_t>(2 * regular.inputs - 1)) return false;
  int next = 0;
  for (std::size_t at = 0; at < tree.size(); ++at) {
    if (tree[at].input != (regular.program[at] == 'j' ? TreeStep::kJoin : next++)) return false;
  }
  return true;
}

struct Operands {
  std::span<const TreeInput> inputs;
  std::span<std::byte* const> outs;
  std::size_t count;
  int regular;
  std::byte* stack;
};

TreeJob job_of(const Reduction& reduction, std::span<const TreeStep> tree, const Operands& operands) {
  Scaling scaling = reduction.scaling;
  if (reduction.op != ReduceOp::kAverage) scaling.divisor = 1.0;
  return {tree.data(),    tree.size(), operands.inputs.data(), operands.outs.data(), operands.outs.size(),
          operands.count, scaling,     reduction.to_partial,   operands.regular,     operands.stack};
}

}  // namespace

int regular_inputs(std::span<const TreeStep> tree) {
  for (const RegularTree& regular : kRegularTrees) {
    if (is_regular(tree, regular)) return regular.inputs;
  }
  return 0;
}

std::size_t accumulator_bytes(DType dtype, ReduceOp op) {
  if (op == ReduceOp::kCustom) return size_of(dtype);
  if (op == ReduceOp::kAverage && is_integer(dtype)) return size_of(dtype) == 8 ? 16 : 8;
  return size_of(accumulator_of(dtype));
}

DType accumulator_of(DType dtype) {
  switch (dtype) {
    case DType::kFloat16:
    case DType::kBFloat16:
    case DType::kFloat8E4m3:
    case DType::kFloat8E5m2:
      return DType::kFloat32;
    default:
      return dtype;
  }
}

void reduce_tree(const Reduction& reduction, std::span<const TreeStep> tree, std::span<const TreeInput> inputs,
                 std::byte* out, std::size_t count) {
  if (tree.empty() || count == 0) return;
  if (reduction.op == ReduceOp::kCustom) return reduce_custom(reduction, tree, inputs, out, count);
  const std::unique_ptr<std::byte[]> stack(new std::byte[stack_bytes(tree)]);
  const TreeJob job = job_of(reduction, tree, {inputs, {&out, 1}, count, regular_inputs(tree), stack.get()});
  kernels_in_use().reduce_tree(reduction.dtype, reduction.op, job);
}

TreeReducer::TreeReducer(std::vector<TreeStep> tree)
    : tree_(std::move(tree)), regular_(regular_inputs(tree_)), stack_(stack_bytes(tree_)) {}

void TreeReducer::prepare_anew(const Reduction& reduction, std::span<const TreeInput> inputs,
                               std::span<std::byte* const> outs, std::size_t count) {
  run_ = nullptr;
  if (tree_.empty() || count == 0) return;
  prepared_ = reduction;
  job_ = job_of(reduction, tree_, {inputs, outs, count, regular_, stack_.data()});
  run_ = kernels_in_use().run_of(reduction.dtype, reduction.op, job_);
}

void TreeReducer::run(const Reduction& reduction, std::span<const TreeInput> inputs, std::span<std::byte* const> outs,
                      std::size_t count) {
  if (tree_.empty() || count == 0) return;
  const TreeJob job = job_of(reduction, tree_, {inputs, outs, count, regular_, stack_.data()});
  kernels_in_use().reduce_tree(reduction.dtype, reduction.op, job);
}

void copy_bytes(std::byte* to, const std::byte* from, std::size_t bytes) {
  kernels_in_use().copy(to, from, bytes);
}

}  // namespace horo
