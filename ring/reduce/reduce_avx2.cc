// Kernels for x86-64 processors with vectors of 256 bits. Only this file is compiled for AVX2.

#include <cpuid.h>

#include "ring/reduce/reduce_kernels.h"

namespace horo {
namespace {

constexpr Kernels kAvx2{"avx2", tree_run<32>, copy_vectors<32>};

// __builtin_cpu_supports of clang 14 has no name for the float16 conversions.
bool converts_float16() {
  unsigned a = 0, b = 0, c = 0, d = 0;
  return __get_cpuid(1, &a, &b, &c, &d) != 0 && (c & bit_F16C) != 0;
}

}  // namespace

const Kernels* avx2_kernels() {
  return __builtin_cpu_supports("avx2") && converts_float16() ? &kAvx2 : nullptr;
}

}  // namespace horo
