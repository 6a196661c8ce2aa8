// The kernels for x86-64 processors with 256-bit integer vectors; this file alone is compiled for them.

#include "ring/reduce_kernels.h"

namespace horo {

const Kernels* avx2_kernels() {
  return __builtin_cpu_supports("avx2") ? &kKernels : nullptr;
}

}  // namespace horo
