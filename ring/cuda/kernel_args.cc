#include "ring/cuda/kernel_args.h"

#include <algorithm>
#include <cstdio>
#include <iterator>

#include "ring/cuda/kernel_code.h"

namespace horo {
namespace {

constexpr std::uint32_t kThreads = 128;
constexpr std::uint32_t kFewThreads = 64;           // where the stacks of more do not fit
constexpr std::uint32_t kMostBlocks = 8192;         // of a reduction; their threads loop
constexpr std::uint32_t kMostSharedBytes = 49'152;  // that every device has
constexpr std::uint32_t kStackedBytes = 32;         // of a value in a stack, at most
static_assert((kMostReduceLevels - 1) * kFewThreads * kStackedBytes <= kMostSharedBytes);

struct KernelType {
  const char* name;
  std::size_t bytes, pack;
  bool has_sum_kernel;
};
template <class Element>
constexpr KernelType kernel_type(const char* name) {
  return {name, sizeof(typename Element::Stored), pack_of<Element>(), kHasSumKernel<Element>};
}
constexpr KernelType kKernelTypes[] = {
    // by the number of the DType
    kernel_type<IntElement<std::uint8_t>>("uint8"),
    kernel_type<IntElement<std::int8_t>>("int8"),
    kernel_type<IntElement<std::uint16_t>>("uint16"),
    kernel_type<IntElement<std::int16_t>>("int16"),
    kernel_type<IntElement<std::int32_t>>("int32"),
    kernel_type<IntElement<std::int64_t>>("int64"),
    kernel_type<Float16Element>("float16"),
    kernel_type<FloatElement<float>>("float32"),
    kernel_type<FloatElement<double>>("float64"),
    kernel_type<BoolElement>("bool"),
    kernel_type<BFloat16Element>("bfloat16"),
    kernel_type<Float8E4m3Element>("float8_e4m3"),
    kernel_type<Float8E5m2Element>("float8_e5m2"),
    kernel_type<IntElement<std::uint32_t>>("uint32"),
    kernel_type<IntElement<std::uint64_t>>("uint64"),
    kernel_type<ComplexElement<float>>("complex64"),
    kernel_type<ComplexElement<double>>("complex128"),
};

const KernelType& type_of(DType dtype) {
  return kKernelTypes[static_cast<std::size_t>(dtype)];
}

ReduceOp op_of_kernel(ReduceOp op) {
  return op == ReduceOp::kAverage ? ReduceOp::kSum : op;
}

// Two regular trees of n inputs that are joined are one of 2 n.
void add_join(ReduceArgs* args) {
  std::uint8_t& last = args->program[args->steps - 1u];
  std::uint8_t& before = args->program[args->steps - 2u];
  if (last == before && last > 0 && last < 8) {
    before = static_cast<std::uint8_t>(2 * last);
    --args->steps;
  } else {
    args->program[args->steps++] = 0;
  }
}

// Returns the most values that the stack of a thread holds below the topmost one, or kMostReduceLevels if the tree is
// none or too large.
std::size_t add_program(const DeviceReduction& reduction, ReduceArgs* args) {
  std::size_t inputs = 0, values = 0, most = 0;
  args->steps = 0;
  for (std::size_t at = 0; at < reduction.steps; ++at) {
    const int input = reduction.tree[at].input;
    if (input == TreeStep::kJoin) {
      if (values < 2) return kMostReduceLevels;
      --values;
      add_join(args);
      continue;
    }
    const bool is_input = input >= 0 && static_cast<std::size_t>(input) < reduction.input_count;
    if (!is_input || inputs == kMostReduceInputs) return kMostReduceLevels;
    args->inputs[inputs++] = static_cast<const std::byte*>(reduction.inputs[input]);
    args->program[args->steps++] = 1;
    most = std::max(most, values++);
  }
  return values == 1 ? most : kMostReduceLevels;
}

// The packs: there are none if the pointers are not aligned alike.
void add_ranges(const DeviceReduction& reduction, std::size_t inputs, ReduceArgs* args) {
  const KernelType& type = type_of(reduction.dtype);
  const std::size_t pack_bytes = type.pack * type.bytes;
  const auto place = [](const void* pointer) { return reinterpret_cast<std::uintptr_t>(pointer); };
  std::uintptr_t apart = 0;
  for (std::size_t i = 0; i < inputs; ++i) apart |= place(args->inputs[i]) ^ place(reduction.out);
  const std::size_t before = (0 - place(reduction.out)) % pack_bytes;
  args->by_bytes = (apart | place(reduction.out)) % type.bytes != 0;
  args->head = std::min(before / type.bytes, reduction.count);
  args->packs = apart % pack_bytes != 0 || args->by_bytes ? 0 : (reduction.count - args->head) / type.pack;
  args->count = reduction.count;
}

std::uint32_t blocks_of(std::uint64_t threads_wanted, std::uint32_t threads) {
  return static_cast<std::uint32_t>(std::min<std::uint64_t>((threads_wanted + threads - 1) / threads, kMostBlocks));
}

}  // namespace

bool prepare_reduce(const DeviceReduction& reduction, ReduceArgs* args, LaunchShape* shape) {
  const bool is_type = static_cast<std::size_t>(reduction.dtype) < std::size(kKernelTypes);
  if (!is_type || !has_kernel(reduction.dtype, reduction.op)) return false;
  args->steps = 0;
  if (reduction.steps == 0 || reduction.count == 0) return true;
  const std::size_t levels = add_program(reduction, args);
  if (levels >= kMostReduceLevels) return false;
  args->op = op_of_kernel(reduction.op);
  args->prescale = reduction.prescale;
  args->postscale = reduction.postscale;
  args->divisor = reduction.op == ReduceOp::kAverage ? reduction.divisor : 1.0;
  args->prescales = args->prescale != 1.0;
  args->finishes = args->divisor != 1.0 || args->postscale != 1.0;
  args->out = static_cast<std::byte*>(reduction.out);
  add_ranges(reduction, (reduction.steps + 1) / 2, args);
  const bool is_deep = levels * kThreads * kStackedBytes > kMostSharedBytes;
  shape->threads = is_deep ? kFewThreads : kThreads;
  const std::uint64_t others = args->count - args->packs * type_of(reduction.dtype).pack;
  shape->blocks = blocks_of(std::max(args->packs, others), shape->threads);
  shape->shared_bytes = static_cast<std::uint32_t>(levels) * shape->threads * kStackedBytes;
  return true;
}

std::size_t prepare_copy(const CopyRow* rows, std::size_t count, CopyArgs* args, LaunchShape* shape) {
  constexpr std::uint32_t kWarps = kThreads / kWarp;
  std::uint64_t chunks = 0;
  std::size_t taken = 0;
  args->rows = 0;
  for (; taken < count && args->rows < kMostCopyRows; ++taken) {
    const CopyRow& row = rows[taken];
    if (row.bytes == 0) continue;
    chunks += (row.bytes + kCopyChunk - 1) / kCopyChunk;
    args->from[args->rows] = static_cast<const std::byte*>(row.from);
    args->to[args->rows] = static_cast<std::byte*>(row.to);
    args->bytes[args->rows] = row.bytes;
    args->ends[args->rows++] = static_cast<std::uint32_t>(chunks);
  }
  *shape = {static_cast<std::uint32_t>((chunks + kWarps - 1) / kWarps), kThreads, 0};
  return taken;
}

KernelName reduce_kernel(DType dtype, ReduceOp op) {
  const KernelType& type = type_of(dtype);
  const bool has_own = type.has_sum_kernel && op_of_kernel(op) == ReduceOp::kSum;
  KernelName name{};
  std::snprintf(name.data(), name.size(), "horo_%s_%s", has_own ? "sum" : "reduce", type.name);
  return name;
}

std::vector<std::string> kernel_names() {
  std::vector<std::string> names{kCopyKernel};
  for (std::size_t type = 0; type < std::size(kKernelTypes); ++type) {
    const auto dtype = static_cast<DType>(type);
    for (const ReduceOp op : {ReduceOp::kSum, ReduceOp::kMin, ReduceOp::kBitAnd}) {
      const std::string name = reduce_kernel(dtype, op).data();
      if (has_kernel(dtype, op) && std::ranges::find(names, name) == names.end()) names.push_back(name);
    }
  }
  return names;
}

}  // namespace horo
