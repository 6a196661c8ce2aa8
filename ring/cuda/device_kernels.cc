#include "ring/cuda/device_kernels.h"

#include <cstdio>
#include <string>

#include "ring/cuda/kernel_image.h"

namespace horo {
namespace {

constexpr int kInvalidArgument = 1;  // CUDA_ERROR_INVALID_VALUE
constexpr int kNoKernelImage = 209;  // CUDA_ERROR_NO_BINARY_FOR_GPU

constexpr int major_of(int cuda_version) {
  return cuda_version / 1000;
}
constexpr int minor_of(int cuda_version) {
  return cuda_version % 1000 / 10;
}

}  // namespace

int DeviceKernels::load_image(const CudaDriver& driver) {
  const KernelImage image = kernel_image();
  if (image.data == nullptr) {
    std::snprintf(why_.data(), why_.size(),
                  "this libhoro_cuda.so was built without kernels, because the build did not find nvcc");
    return kNoKernelImage;
  }
  int version = 0;
  if (const int error = driver.version(&version)) return error;
  if (major_of(version) < major_of(image.cuda_version)) {
    std::snprintf(why_.data(), why_.size(),
                  "the kernels are compiled for CUDA %d.%d, and the NVIDIA driver is for CUDA %d.%d: install a driver "
                  "for CUDA %d, or build horo with an older nvcc",
                  major_of(image.cuda_version), minor_of(image.cuda_version), major_of(version), minor_of(version),
                  major_of(image.cuda_version));
    return kNoKernelImage;
  }
  const int error = driver.load_module(&module_, image.data);
  if (error == 0) return load_kernels(driver);
  std::array<char, 200> text{};
  cuda_error_text(driver, error, text.data(), text.size());
  std::snprintf(why_.data(), why_.size(), "the NVIDIA driver (CUDA %d.%d) does not load the kernels of CUDA %d.%d: %s",
                major_of(version), minor_of(version), major_of(image.cuda_version), minor_of(image.cuda_version),
                text.data());
  return error;
}

// The driver would load a kernel when it is asked for, and may wait for the device then, which may wait for a rank.
int DeviceKernels::load_kernels(const CudaDriver& driver) {
  for (const std::string& name : kernel_names()) {
    if (const int error = driver.find_kernel(&found_[name], module_, name.c_str())) {
      std::snprintf(why_.data(), why_.size(), "the NVIDIA driver does not find the kernel %s", name.c_str());
      return error;
    }
  }
  return 0;
}

int DeviceKernels::load_once(const CudaDriver& driver) {
  if (!is_tried_) error_ = load_image(driver);
  is_tried_ = true;
  return error_;
}

int DeviceKernels::load(const CudaDriver& driver, char* why, std::size_t room) {
  const std::lock_guard lock(mutex_);
  const int error = load_once(driver);
  std::snprintf(why, room, "%s", why_.data());
  return error;
}

int DeviceKernels::find(const CudaDriver& driver, const char* name, CudaKernel* kernel) {
  const std::lock_guard lock(mutex_);
  if (const int error = load_once(driver)) return error;
  const auto found = found_.find(name);
  if (found == found_.end()) return kInvalidArgument;
  *kernel = found->second;
  return 0;
}

int DeviceKernels::launch(const CudaDriver& driver, const char* name, const LaunchShape& shape, void* args,
                          CudaStream stream) {
  CudaKernel kernel = nullptr;
  if (const int error = find(driver, name, &kernel)) return error;
  return driver.launch(kernel, shape.blocks, 1, 1, shape.threads, 1, 1, shape.shared_bytes, stream, &args, nullptr);
}

int DeviceKernels::reduce(const CudaDriver& driver, const DeviceReduction& reduction, CudaStream stream) {
  ReduceArgs args;
  LaunchShape shape;
  if (!prepare_reduce(reduction, &args, &shape)) return kInvalidArgument;
  if (args.steps == 0) return 0;
  return launch(driver, reduce_kernel(reduction.dtype, reduction.op).data(), shape, &args, stream);
}

int DeviceKernels::copy_rows(const CudaDriver& driver, std::span<const CopyRow> rows, CudaStream stream) {
  while (!rows.empty()) {
    CopyArgs args;
    LaunchShape shape;
    rows = rows.subspan(prepare_copy(rows.data(), rows.size(), &args, &shape));
    if (args.rows == 0) continue;
    if (const int error = launch(driver, kCopyKernel, shape, &args, stream)) return error;
  }
  return 0;
}

}  // namespace horo
