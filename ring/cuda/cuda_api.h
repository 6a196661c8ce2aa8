// The table of functions that the plug-in libhoro_cuda.so gives libhoro.so: the few calls of CUDA's driver that horo
// needs, without a type of CUDA. libhoro.so needs neither a driver nor a header of CUDA; the plug-in loads the driver
// when a session first sees a CUDA tensor.
//
// All calls return 0 or an error of CUDA, for error_text(). None throws. Any thread. start(), the first enter() of a
// device, load_kernels(), pin(), unpin(), calls named *_blocking, and copies of host memory that is not pinned may
// block; the others do not. Only start() and error_text() may be called before start() has returned 0. Calls without a
// device parameter use the context that enter() made current in this thread.
#pragma once

#include <cstddef>
#include <cstdint>

#include "horo/base/types.h"
#include "ring/reduce/tree.h"

namespace horo {

// Increased with every change of the declarations below.
inline constexpr std::uint32_t kCudaApiVersion = 4;
inline constexpr char kCudaApiEntry[] = "horo_cuda_api";  // const CudaApi* horo_cuda_api(void)

// What start() says in a process that was forked after CUDA was used, where the driver does not work.
inline constexpr char kForkedText[] =
    "this process was forked after its parent had used CUDA, where the driver does not work: a process that needs CUDA "
    "is started anew ('spawn'), not by fork";

using CudaStream = void*;  // null: the default stream
using CudaEvent = void*;

// A reduction by a kernel, of memory of one device.
struct DeviceReduction {
  DType dtype = DType::kFloat32;
  ReduceOp op = ReduceOp::kSum;
  const void* const* inputs = nullptr;  // any alignment
  std::size_t input_count = 0;
  const TreeStep* tree = nullptr;  // its leaves are indices of inputs
  std::size_t steps = 0;
  void* out = nullptr;    // may be one of the inputs, else it is disjoint from them; any alignment
  std::size_t count = 0;  // elements
  double prescale = 1.0;
  double postscale = 1.0;
  double divisor = 1.0;  // of kAverage alone
};

// The most leaves of a tree, and the most results of subtrees that wait for their other half: the tree over any ids
// below 2^23 has fewer.
inline constexpr std::size_t kMostReduceInputs = 256;
inline constexpr std::size_t kMostReduceLevels = 24;

// Whether there is a kernel. The average of integers (128 bits wide on the host), Adasum and operations of users have
// none, and neither has what is not defined on the host: supports() of horo/base/types.h.
constexpr bool has_kernel(DType dtype, ReduceOp op) {
  const bool is_complex = dtype == DType::kComplex64 || dtype == DType::kComplex128;
  const bool is_float = dtype == DType::kFloat16 || dtype == DType::kFloat32 || dtype == DType::kFloat64 ||
                        dtype == DType::kBFloat16 || dtype == DType::kFloat8E4m3 || dtype == DType::kFloat8E5m2;
  switch (op) {
    case ReduceOp::kSum:
    case ReduceOp::kProduct:
      return true;
    case ReduceOp::kAverage:
      return is_float || is_complex;
    case ReduceOp::kMin:
    case ReduceOp::kMax:
      return !is_complex;
    case ReduceOp::kBitAnd:
    case ReduceOp::kBitOr:
    case ReduceOp::kBitXor:
      return !is_float && !is_complex;
    case ReduceOp::kAdasum:
    case ReduceOp::kCustom:
      return false;
  }
  return false;
}

// Of one kernel.
inline constexpr std::size_t kMostCopyRows = 140;

struct CopyRow {
  const void* from;
  void* to;
  std::size_t bytes;
};

struct CudaApi {
  std::uint32_t version;

  // Loads the driver and counts the devices, of which the first 64 are used. Not 0: `why` has the reason. May be called
  // again.
  int (*start)(int* devices, char* why, std::size_t room);
  // "NVIDIA H100 80GB HBM3, CUDA 13.0".
  int (*describe)(int device, char* text, std::size_t room);
  // 16 bytes that no other device has, also of other hosts.
  int (*identify)(int device, unsigned char* uuid);
  // The primary context of the device is current in this thread until leave(), which restores the one before. Calls in
  // between do not disturb the capture of a graph by another thread.
  int (*enter)(int device);
  int (*leave)();

  // A non-blocking stream, of the highest priority.
  int (*stream_create)(CudaStream* stream);
  int (*stream_destroy)(CudaStream stream);
  int (*stream_is_capturing)(CudaStream stream, bool* is_capturing);
  int (*event_create)(CudaEvent* event);
  int (*event_create_timed)(CudaEvent* event);  // for event_elapsed()
  int (*event_destroy)(CudaEvent event);
  // The event completes when everything that was enqueued on the stream before has ended.
  int (*event_record)(CudaEvent event, CudaStream stream);
  int (*event_query)(CudaEvent event, bool* is_complete);
  // The milliseconds from one event to another, both of event_create_timed() and of one device. Not complete: one of
  // them is not, and `ms` is not set.
  int (*event_elapsed)(CudaEvent from, CudaEvent to, float* ms, bool* are_complete);
  int (*event_wait_blocking)(CudaEvent event);  // without a busy processor
  // What is enqueued on the stream from now on begins when the event's last record is complete. Any device.
  int (*stream_wait)(CudaStream stream, CudaEvent event);

  int (*allocate_blocking)(void** memory, std::size_t bytes);
  int (*free_blocking)(void* memory);  // waits for all work of the device

  // Copies are enqueued on the stream.
  int (*copy_to_host)(void* to, const void* from, std::size_t bytes, CudaStream stream);
  int (*copy_to_device)(void* to, const void* from, std::size_t bytes, CudaStream stream);
  int (*copy_on_device)(void* to, const void* from, std::size_t bytes, CudaStream stream);
  // Page-locks host memory for DMA.
  int (*pin)(void* data, std::size_t bytes);
  int (*unpin)(void* data);

  void (*error_text)(int error, char* text, std::size_t room);

  // Loads the kernels into the current device, once; blocks then. Not 0: there are none, `why` has the reason, and
  // reduce() and copy_rows() fail. They load the kernels themselves if that is left to them.
  int (*load_kernels)(char* why, std::size_t room);
  // Enqueues one kernel with the bits of reduce_tree() (ring/reduce/reduce.h), or nothing if the tree or the count is
  // empty: out[i] = round(postscale * (T(prescale * widen(inputs[..][i])) / divisor)). What it takes is copied at the
  // call. An error if has_kernel() is false, or the tree is too large or none.
  int (*reduce)(const DeviceReduction* reduction, CudaStream stream);
  // Enqueues copies on the device, kMostCopyRows rows that are not empty in a kernel. The rows are copied at the call;
  // their memory does not overlap.
  int (*copy_rows)(const CopyRow* rows, std::size_t count, CudaStream stream);
};

}  // namespace horo
