// DeviceScratch: memory of a device that grows with what is asked for.
#pragma once

#include <cstddef>

#include "ring/cuda/cuda_device.h"

namespace horo {

// One thread at a time. What uses the memory is on one stream.
class DeviceScratch {
 public:
  explicit DeviceScratch(const CudaDevice& device) : device_(device) {}
  ~DeviceScratch() { free(); }
  DeviceScratch(const DeviceScratch&) = delete;
  DeviceScratch& operator=(const DeviceScratch&) = delete;

  // Memory of at least these bytes, of undefined content; that of an earlier call is not valid any more. To grow waits
  // for all work of the device. With the device as the current one. Throws std::runtime_error: the device has no memory
  // left.
  std::byte* at_least(std::size_t bytes);
  std::byte* data() const { return data_; }

 private:
  void free() noexcept;

  const CudaDevice device_;
  std::byte* data_ = nullptr;
  std::size_t bytes_ = 0;
};

}  // namespace horo
