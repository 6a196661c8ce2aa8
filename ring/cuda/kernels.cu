// The kernels, compiled by nvcc into the image that libhoro_cuda.so embeds. Their code is kernel_code.h; here are the
// accesses to memory, and the functions by name (reduce_kernel()).

#include "ring/cuda/kernel_code.h"

namespace horo {
namespace {

constexpr unsigned kMostThreads = 128;

template <class Value>
__device__ Value load_at_once(const std::byte* at) {
  if constexpr (sizeof(Value) == 16) {
    return std::bit_cast<Value>(*reinterpret_cast<const uint4*>(at));
  } else if constexpr (sizeof(Value) == 8) {
    return std::bit_cast<Value>(*reinterpret_cast<const uint2*>(at));
  } else {
    return *reinterpret_cast<const Value*>(at);
  }
}

template <class Value>
__device__ void store_at_once(std::byte* at, const Value& value) {
  if constexpr (sizeof(Value) == 16) {
    *reinterpret_cast<uint4*>(at) = std::bit_cast<uint4>(value);
  } else if constexpr (sizeof(Value) == 8) {
    *reinterpret_cast<uint2*>(at) = std::bit_cast<uint2>(value);
  } else {
    *reinterpret_cast<Value*>(at) = value;
  }
}

// The memory of a thread. Its stack is in shared memory: a level is a row with the values of all threads.
struct DeviceMemory {
  static constexpr std::uint32_t kLanes = kWarp;
  std::byte* stack;

  template <class Value>
  __device__ Value load(const std::byte* at, bool by_bytes) const {
    if (!by_bytes) return load_at_once<Value>(at);
    Value value{};
    std::memcpy(&value, at, sizeof(value));
    return value;
  }
  template <class Value>
  __device__ void store(std::byte* at, const Value& value, bool by_bytes) const {
    if (!by_bytes) return store_at_once(at, value);
    std::memcpy(at, &value, sizeof(value));
  }
  template <class Value>
  __device__ Value& level(std::size_t level) const {
    return reinterpret_cast<Value*>(stack)[level * blockDim.x + threadIdx.x];
  }
  template <class Value>
  __device__ void push(std::size_t at, const Value& value) const {
    level<Value>(at) = value;
  }
  template <class Value>
  __device__ Value pop(std::size_t at) const {
    return level<Value>(at);
  }
  __device__ std::uint32_t lane() const { return threadIdx.x % kWarp; }
  __device__ std::uint64_t address(const void* pointer) const { return reinterpret_cast<std::uint64_t>(pointer); }
};

__device__ std::uint64_t thread_number() {
  return std::uint64_t{blockIdx.x} * blockDim.x + threadIdx.x;
}

template <class Element, class Op>
__device__ void reduce_on_device(const ReduceArgs& args) {
  extern __shared__ __align__(16) std::byte stack[];
  const std::uint64_t threads = std::uint64_t{gridDim.x} * blockDim.x;
  reduce_by_thread<Element, Op>(args, DeviceMemory{stack}, thread_number(), threads);
}

}  // namespace
}  // namespace horo

#define HORO_KERNEL(name, Element, Op)                                          \
  extern "C" __global__ __launch_bounds__(horo::kMostThreads) void horo_##name( \
      const __grid_constant__ horo::ReduceArgs args) {                          \
    horo::reduce_on_device<horo::Element, horo::Op>(args);                      \
  }

HORO_KERNEL(sum_float16, Float16Element, Sum)
HORO_KERNEL(sum_bfloat16, BFloat16Element, Sum)
HORO_KERNEL(sum_float32, FloatElement<float>, Sum)
HORO_KERNEL(sum_float64, FloatElement<double>, Sum)
HORO_KERNEL(reduce_uint8, IntElement<std::uint8_t>, AnyOp)
HORO_KERNEL(reduce_int8, IntElement<std::int8_t>, AnyOp)
HORO_KERNEL(reduce_uint16, IntElement<std::uint16_t>, AnyOp)
HORO_KERNEL(reduce_int16, IntElement<std::int16_t>, AnyOp)
HORO_KERNEL(reduce_int32, IntElement<std::int32_t>, AnyOp)
HORO_KERNEL(reduce_int64, IntElement<std::int64_t>, AnyOp)
HORO_KERNEL(reduce_float16, Float16Element, AnyOp)
HORO_KERNEL(reduce_float32, FloatElement<float>, AnyOp)
HORO_KERNEL(reduce_float64, FloatElement<double>, AnyOp)
HORO_KERNEL(reduce_bool, BoolElement, AnyOp)
HORO_KERNEL(reduce_bfloat16, BFloat16Element, AnyOp)
HORO_KERNEL(reduce_float8_e4m3, Float8E4m3Element, AnyOp)
HORO_KERNEL(reduce_float8_e5m2, Float8E5m2Element, AnyOp)
HORO_KERNEL(reduce_uint32, IntElement<std::uint32_t>, AnyOp)
HORO_KERNEL(reduce_uint64, IntElement<std::uint64_t>, AnyOp)
HORO_KERNEL(reduce_complex64, ComplexElement<float>, AnyOp)
HORO_KERNEL(reduce_complex128, ComplexElement<double>, AnyOp)

extern "C" __global__ __launch_bounds__(horo::kMostThreads) void horo_copy_rows(
    const __grid_constant__ horo::CopyArgs args) {
  const std::uint64_t chunk = horo::thread_number() / horo::kWarp;
  if (chunk < args.ends[args.rows - 1]) {
    horo::copy_chunk(args, horo::DeviceMemory{nullptr}, static_cast<std::uint32_t>(chunk));
  }
}
