// The parameters of the kernels (kernels.cu): what the host prepares, and both compilers read. A kernel has one
// parameter, of at most 4 KB.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "ring/cuda/cuda_api.h"

namespace horo {

inline constexpr std::size_t kMostParameterBytes = 4096;

// A reduction. Each thread takes packs of elements (kernel_code.h), if all pointers are aligned for them, and the
// elements before and behind these one by one.
struct ReduceArgs {
  // The tree as a program for a stack: n > 0 pushes the combination of the next n inputs in the regular tree, n being
  // 1, 2, 4 or 8, and 0 joins the two topmost values, the lower one on the left.
  std::array<std::uint8_t, 2 * kMostReduceInputs - 1> program;
  ReduceOp op;     // kSum for averages
  bool prescales;  // the factor is not 1
  bool finishes;   // divisor or postscale is not 1
  bool by_bytes;   // a pointer is not aligned for its elements
  std::uint16_t steps;
  double prescale, postscale, divisor;
  std::array<const std::byte*, kMostReduceInputs> inputs;  // in the order of the program
  std::byte* out;
  std::uint64_t head;   // elements before the first pack
  std::uint64_t packs;  // behind which further elements stand
  std::uint64_t count;  // of all elements
};
static_assert(sizeof(ReduceArgs) <= kMostParameterBytes);

// Copies: each warp takes a chunk of a row.
inline constexpr std::uint32_t kWarp = 32;  // threads
inline constexpr std::uint64_t kCopyChunk = 2048;
struct CopyArgs {
  std::array<const std::byte*, kMostCopyRows> from;
  std::array<std::byte*, kMostCopyRows> to;
  std::array<std::uint64_t, kMostCopyRows> bytes;
  std::array<std::uint32_t, kMostCopyRows> ends;  // the chunks of this row and the rows before
  std::uint32_t rows;
};
static_assert(sizeof(CopyArgs) <= kMostParameterBytes);

// Threads of one kernel.
struct LaunchShape {
  std::uint32_t blocks;
  std::uint32_t threads;  // of a block
  std::uint32_t shared_bytes;
};

// The parameters of a reduction; without steps if there is nothing to do. False if the reduction has no kernel.
bool prepare_reduce(const DeviceReduction& reduction, ReduceArgs* args, LaunchShape* shape);
// The parameters of the first rows, at least one of which is left; rows that are empty are left out. Returns how many
// rows that were. There is nothing to copy if the shape has no blocks.
std::size_t prepare_copy(const CopyRow* rows, std::size_t count, CopyArgs* args, LaunchShape* shape);

// The names of the kernels in the image.
inline constexpr char kCopyKernel[] = "horo_copy_rows";
using KernelName = std::array<char, 32>;
// "horo_sum_float32" or "horo_reduce_int8".
KernelName reduce_kernel(DType dtype, ReduceOp op);
// All of them, without repetition.
std::vector<std::string> kernel_names();

}  // namespace horo
