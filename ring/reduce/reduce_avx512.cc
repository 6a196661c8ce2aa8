// Kernels for x86-64 processors with vectors of 512 bits. Only this file is compiled for AVX-512.

#include "ring/reduce/reduce_kernels.h"

namespace horo {
namespace {

// g++ 12 compiles products of complex numbers to fused multiply-adds (vfmaddsub) even with -ffp-contract=off.
bool may_be_fused(DType dtype, ReduceOp op) {
  return op == ReduceOp::kProduct && (dtype == DType::kComplex64 || dtype == DType::kComplex128);
}

TreeRun run(DType dtype, ReduceOp op, const TreeJob& job) {
  if (may_be_fused(dtype, op)) return avx2_kernels()->tree_run(dtype, op, job);
  return tree_run<64>(dtype, op, job);
}

constexpr Kernels kAvx512{"avx512", run, copy_vectors<64>};

}  // namespace

const Kernels* avx512_kernels() {
  const bool has_all = avx2_kernels() != nullptr && __builtin_cpu_supports("avx512f") &&
                       __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq") &&
                       __builtin_cpu_supports("avx512vl");
  return has_all ? &kAvx512 : nullptr;
}

}  // namespace horo
