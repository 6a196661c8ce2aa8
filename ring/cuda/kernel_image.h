// The kernels as nvcc compiled them: machine code for some processors, and PTX for later ones.
#pragma once

namespace horo {

struct KernelImage {
  const void* data;  // null: the plug-in was built without nvcc
  int cuda_version;  // of nvcc: 13'000 is CUDA 13.0
};
KernelImage kernel_image();

}  // namespace horo
