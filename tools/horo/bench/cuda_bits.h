// The kernels of a CUDA device beside the CPU's.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "ring/cuda/cuda_device.h"

namespace horo::tools {

struct CudaBits {
  int checked = 0;
  std::vector<std::string> wrong;  // what differs
};
// Compares reductions of random bits: all types and operations, 1 to 9 and 32 inputs, several sizes up to
// most_elements, factors, alignments, results in place. With the device as the current one. Throws std::runtime_error.
CudaBits compare_cuda(const CudaDevice& device, std::size_t most_elements);

}  // namespace horo::tools
