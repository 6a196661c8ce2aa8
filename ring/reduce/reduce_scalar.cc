// Kernels without vectors. They are slow, and the reference for the other kernels.

#include "ring/reduce/reduce_kernels.h"

namespace horo {
namespace {

void copy_bytes_plainly(std::byte* to, const std::byte* from, std::size_t bytes) {
  std::memcpy(to, from, bytes);
}

constexpr Kernels kScalar{"scalar", tree_run<0>, copy_bytes_plainly};

}  // namespace

const Kernels& scalar_kernels() {
  return kScalar;
}

}  // namespace horo
