// Loads the plug-in for CUDA.
#pragma once

#include "horo/base/config.h"
#include "ring/cuda/cuda_api.h"

namespace horo {

// The table of the plug-in (Config::cuda_library), whose driver is started, and the number of its devices, at least
// one. Throws std::invalid_argument, with the remedy: there is no plug-in, it is of another version, there is no
// driver, or no device. Blocks for up to seconds in the first call of a process.
struct CudaLibrary {
  const CudaApi* api = nullptr;
  int devices = 0;
};
CudaLibrary load_cuda(const Config& config);

}  // namespace horo
