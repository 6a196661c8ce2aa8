// DeviceLoans: memory of devices for results whose size the callers do not know before: horo lends it until the callers
// have copied them.
#pragma once

#include <cstddef>
#include <map>
#include <memory>

#include "horo/base/mutex.h"
#include "ring/cuda/cuda_device.h"
#include "ring/cuda/device_memory.h"

namespace horo {

class DeviceLoans;

// Goes back at its end. One thread at a time.
class DeviceLoan {
 public:
  DeviceLoan(std::shared_ptr<DeviceLoans> owner, const CudaDevice& device, std::byte* data, std::size_t bytes)
      : owner_(std::move(owner)), device_(device), data_(data), bytes_(bytes) {}
  ~DeviceLoan();
  DeviceLoan(const DeviceLoan&) = delete;
  DeviceLoan& operator=(const DeviceLoan&) = delete;

  const CudaDevice& device() const { return device_; }
  std::byte* data() const { return data_; }
  // The event is complete when the result is there.
  void written_by(std::shared_ptr<const DeviceEvent> event) { written_ = std::move(event); }
  // Enqueues a copy of this many bytes to memory of the device on a stream of it, which has waited for the result.
  // Throws std::runtime_error (CUDA).
  void copy_to(void* out, std::size_t bytes, CudaStream stream);

 private:
  const std::shared_ptr<DeviceLoans> owner_;
  const CudaDevice device_;
  std::byte* const data_;
  const std::size_t bytes_;
  std::shared_ptr<const DeviceEvent> written_, read_;
};

// Any thread. Held by a shared_ptr. All memory is freed at the end of the object and of all loans.
class DeviceLoans : public std::enable_shared_from_this<DeviceLoans> {
 public:
  DeviceLoans() = default;
  // Blocks until the memory is neither written nor read any more.
  ~DeviceLoans();
  DeviceLoans(const DeviceLoans&) = delete;
  DeviceLoans& operator=(const DeviceLoans&) = delete;

  // Memory of at least these bytes, of undefined content, for what is enqueued on the stream from now on. Throws
  // std::runtime_error: the device has no memory left.
  std::shared_ptr<DeviceLoan> take(const CudaDevice& device, std::size_t bytes, const DeviceStream& writer);

 private:
  friend DeviceLoan;
  struct Spare {
    std::byte* data = nullptr;
    std::shared_ptr<const DeviceEvent> written, read;  // of its last use; null: none
  };
  // What a device has.
  struct Place {
    explicit Place(const CudaDevice& device)
        : blocks(device, "results of sizes that the caller does not know (HORO_GPU_BACKEND=host needs none)") {}
    DeviceBlocks blocks;
    std::size_t largest = 0;
    std::multimap<std::size_t, Spare> spare = {};  // by size
  };

  static std::byte* add_to(Place& place, std::size_t bytes, std::size_t& size);

  Mutex mutex_;
  std::map<int, Place> places_ GUARDED_BY(mutex_);  // by device
};

}  // namespace horo
