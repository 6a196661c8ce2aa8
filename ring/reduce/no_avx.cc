// Other architectures than x86-64 have the scalar and baseline kernels only.

#include "ring/reduce/kernels.h"

namespace horo {

const Kernels* avx2_kernels() {
  return nullptr;
}

const Kernels* avx512_kernels() {
  return nullptr;
}

}  // namespace horo
