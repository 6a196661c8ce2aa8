// The build names the file: HORO_KERNEL_IMAGE, and its version: HORO_NVCC_VERSION (ring/cuda/kernels.cmake).

#include "ring/cuda/kernel_image.h"

__asm__(
    ".section .rodata\n"
    ".balign 16\n"
    ".hidden horo_kernel_image\n"
    ".global horo_kernel_image\n"
    "horo_kernel_image:\n"
    ".incbin \"" HORO_KERNEL_IMAGE
    "\"\n"
    ".previous\n");

extern "C" const char horo_kernel_image[];

namespace horo {

KernelImage kernel_image() {
  return {horo_kernel_image, HORO_NVCC_VERSION};
}

}  // namespace horo
