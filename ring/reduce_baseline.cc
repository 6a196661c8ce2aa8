// The kernels for every processor of this architecture.

#include "ring/reduce_kernels.h"

namespace horo {

const Kernels& baseline_kernels() {
  return kKernels;
}

}  // namespace horo
