// DeviceScratch: memory of a device that grows with what is asked for.
#pragma once

#include <cstddef>
#include <vector>

#include "ring/cuda/cuda_device.h"

namespace horo {

// One thread at a time. What uses the memory is on one stream.
class DeviceScratch {
 public:
  // what_for: the use and the setting, for the error.
  explicit DeviceScratch(const CudaDevice& device, const char* what_for = "buckets (HORO_BUCKET_BYTES)")
      : device_(device), what_for_(what_for) {}
  ~DeviceScratch() { free(); }
  DeviceScratch(const DeviceScratch&) = delete;
  DeviceScratch& operator=(const DeviceScratch&) = delete;

  // Memory of at least these bytes, of undefined content; that of an earlier call stays valid for what is enqueued. It
  // grows by doubling, and what is too small is freed at the end: to free memory waits for all work of the device,
  // which may wait for a rank that is lost. With the device as the current one. Throws std::runtime_error: the device
  // has no memory left.
  std::byte* at_least(std::size_t bytes);
  std::byte* data() const { return data_; }
  // Frees all of it. Blocks until the device is idle.
  void free() noexcept;

 private:
  const CudaDevice device_;
  const char* const what_for_;
  std::byte* data_ = nullptr;
  std::size_t bytes_ = 0;
  std::vector<std::byte*> all_;
};

}  // namespace horo
