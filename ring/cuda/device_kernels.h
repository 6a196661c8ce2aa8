// DeviceKernels: the kernels of the plug-in in one device.
#pragma once

#include <array>
#include <cstddef>
#include <functional>
#include <map>
#include <mutex>
#include <span>
#include <string>

#include "ring/cuda/cuda_api.h"
#include "ring/cuda/cuda_driver.h"
#include "ring/cuda/kernel_args.h"

namespace horo {

// Any thread, with the device's context as the current one. The functions are those of CudaApi. All kernels are loaded
// at once, and stay loaded until the process ends.
class DeviceKernels {
 public:
  int load(const CudaDriver& driver, char* why, std::size_t room);
  int reduce(const CudaDriver& driver, const DeviceReduction& reduction, CudaStream stream);
  int copy_rows(const CudaDriver& driver, std::span<const CopyRow> rows, CudaStream stream);

 private:
  // The first three under the lock.
  int load_image(const CudaDriver& driver);
  int load_kernels(const CudaDriver& driver);
  int load_once(const CudaDriver& driver);
  int find(const CudaDriver& driver, const char* name, CudaKernel* kernel);
  int launch(const CudaDriver& driver, const char* name, const LaunchShape& shape, void* args, CudaStream stream);

  std::mutex mutex_;  // guards the rest
  bool is_tried_ = false;
  int error_ = 0;  // of loading
  std::array<char, 400> why_{};
  CudaModule module_ = nullptr;
  std::map<std::string, CudaKernel, std::less<>> found_;  // by name
};

}  // namespace horo
