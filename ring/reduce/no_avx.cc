// Other architectures have the baseline alone.

#include "ring/reduce/kernels.h"

namespace horo {

const Kernels* avx2_kernels() {
  return nullptr;
}

const Kernels* avx512_kernels() {
  return nullptr;
}

}  // namespace horo
