#include "tests/ring/cuda/host_kernels.h"

#include <cstdlib>
#include <type_traits>

#include "ring/cuda/kernel_code.h"
#include "ring/reduce/dispatch.h"

namespace horo::test {
namespace {

// The memory of a thread, as DeviceMemory of kernels.cu.
struct HostMemory {
  static constexpr std::uint32_t kLanes = 16;
  static constexpr std::size_t kLevelBytes = 32;

  std::byte* stack = nullptr;
  std::size_t levels = 0;
  std::uint32_t lane_number = 0;

  template <class Value>
  Value load(const std::byte* at, bool by_bytes) const {
    check(at, by_bytes, alignof(Value));
    Value value{};
    std::memcpy(&value, at, sizeof(value));
    return value;
  }
  template <class Value>
  void store(std::byte* at, const Value& value, bool by_bytes) const {
    check(at, by_bytes, alignof(Value));
    std::memcpy(at, &value, sizeof(value));
  }
  template <class Value>
  void push(std::size_t level, const Value& value) const {
    static_assert(sizeof(value) <= kLevelBytes);
    if (level >= levels) std::abort();
    std::memcpy(stack + level * kLevelBytes, &value, sizeof(value));
  }
  template <class Value>
  Value pop(std::size_t level) const {
    Value value{};
    std::memcpy(&value, stack + level * kLevelBytes, sizeof(value));
    return value;
  }
  std::uint32_t lane() const { return lane_number; }
  std::uint64_t address(const void* pointer) const { return reinterpret_cast<std::uintptr_t>(pointer); }

  void check(const void* at, bool by_bytes, std::size_t alignment) const {
    if (!by_bytes && address(at) % alignment != 0) std::abort();
  }
};

template <class Element, class Op>
void run_reduce(const void* parameters, const LaunchShape& shape) {
  const ReduceArgs& args = *static_cast<const ReduceArgs*>(parameters);
  std::byte stack[kMostReduceLevels * HostMemory::kLevelBytes];
  const HostMemory memory{stack, shape.shared_bytes / shape.threads / HostMemory::kLevelBytes};
  const std::uint64_t threads = std::uint64_t{shape.blocks} * shape.threads;
  for (std::uint64_t thread = 0; thread < threads; ++thread)
    reduce_by_thread<Element, Op>(args, memory, thread, threads);
}

void run_copy(const void* parameters, const LaunchShape& shape) {
  const CopyArgs& args = *static_cast<const CopyArgs*>(parameters);
  const std::uint32_t chunks = args.ends[args.rows - 1];
  if (std::uint64_t{shape.blocks} * shape.threads < std::uint64_t{chunks} * kWarp) std::abort();
  for (std::uint32_t chunk = 0; chunk < chunks; ++chunk) {
    for (std::uint32_t lane = 0; lane < HostMemory::kLanes; ++lane)
      copy_chunk(args, HostMemory{nullptr, 0, lane}, chunk);
  }
}

HostKernel kernel_for(DType dtype, std::string_view name) {
  HostKernel found = nullptr;
  with_element(dtype, [&](auto element) {
    using Element = decltype(element);
    if (name == reduce_kernel(dtype, ReduceOp::kProduct).data()) found = run_reduce<Element, AnyOp>;
    if constexpr (kHasSumKernel<Element>) {
      if (name == reduce_kernel(dtype, ReduceOp::kSum).data()) found = run_reduce<Element, Sum>;
    }
  });
  return found;
}

}  // namespace

HostKernel host_kernel(std::string_view name) {
  if (name == kCopyKernel) return run_copy;
  for (int number = 0; const auto dtype = dtype_from(number); ++number) {
    if (const HostKernel found = kernel_for(*dtype, name)) return found;
  }
  return nullptr;
}

}  // namespace horo::test
