// Memory of a device: DeviceBlocks, and DeviceScratch, which grows with what is asked for.
#pragma once

#include <cstddef>
#include <vector>

#include "ring/cuda/cuda_device.h"

namespace horo {

// Memory that is given back and lent again has few sizes, so that it fits what is asked for: at most a quarter of it is
// not needed, of 4 KiB and more.
std::size_t rounded_bytes(std::size_t bytes);

// All blocks are freed together, at the end, when what uses them is done: the driver may wait for all work of the
// device then, which may wait for a rank that is lost, or for nothing. One thread at a time.
class DeviceBlocks {
 public:
  // what_for: the use and the setting, for the error.
  DeviceBlocks(const CudaDevice& device, const char* what_for) : device_(device), what_for_(what_for) {}
  ~DeviceBlocks() { free(); }
  DeviceBlocks(const DeviceBlocks&) = delete;
  DeviceBlocks& operator=(const DeviceBlocks&) = delete;

  // A block of undefined content. With the device as the current one. Throws std::runtime_error: the device has no
  // memory left.
  std::byte* add(std::size_t bytes);
  // Frees all of them. May block until the device is idle.
  void free() noexcept;

 private:
  const CudaDevice device_;
  const char* const what_for_;
  std::vector<std::byte*> blocks_;
};

// What uses the memory is on one stream. One thread at a time.
class DeviceScratch {
 public:
  DeviceScratch(const CudaDevice& device, const char* what_for) : blocks_(device, what_for) {}

  // Memory of at least these bytes, of undefined content; that of an earlier call stays valid for what is enqueued. It
  // grows by doubling. As DeviceBlocks::add().
  std::byte* at_least(std::size_t bytes);
  std::byte* data() const { return data_; }
  // Frees all of it. May block until the device is idle.
  void free() noexcept;

 private:
  std::byte* data_ = nullptr;
  std::size_t bytes_ = 0;
  DeviceBlocks blocks_;
};

}  // namespace horo
