// Kernels for every processor of this architecture, with vectors of 128 bits.

#include "ring/reduce/reduce_kernels.h"

namespace horo {
namespace {

#if defined(__aarch64__)
constexpr const char* kName = "neon";
#elif defined(__x86_64__)
constexpr const char* kName = "sse2";
#else
constexpr const char* kName = "baseline";
#endif
constexpr Kernels kBaseline{kName, tree_run<16>, copy_vectors<16>};

}  // namespace

const Kernels& baseline_kernels() {
  return kBaseline;
}

}  // namespace horo
