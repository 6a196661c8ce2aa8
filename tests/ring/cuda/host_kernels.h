// The kernels of CUDA on the host, for the fakes: the code of ring/cuda/kernel_code.h, compiled by g++. A pointer that
// is not aligned for an access, and a stack that is larger than the shared memory of its block, abort the process, as
// they are errors of a GPU.
#pragma once

#include <string_view>

#include "ring/cuda/kernel_args.h"

namespace horo::test {

// Runs the threads of a launch. args: ReduceArgs or CopyArgs, with addresses of the host.
using HostKernel = void (*)(const void* args, const LaunchShape& shape);
// The kernel of this name, or null.
HostKernel host_kernel(std::string_view name);

}  // namespace horo::test
