// The kernels without vectors: slow, and what the others have to agree with.

#include "ring/reduce_kernels.h"

namespace horo {
namespace {

constexpr Kernels kScalar{"scalar", run_tree<0>};

}  // namespace

const Kernels& scalar_kernels() {
  return kScalar;
}

}  // namespace horo
