// CudaDevices: the CUDA devices that a session uses, by number; and the objects of one device.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "horo/base/config.h"
#include "horo/base/forked.h"
#include "horo/base/mutex.h"
#include "ring/cuda/cuda_library.h"

namespace horo {

// Valid as long as the process. Any thread. Functions throw std::runtime_error, with device, call and CUDA's text.
class CudaDevice {
 public:
  CudaDevice(const CudaApi& api, int number) : api_(&api), number_(number), generation_(fork_generation()) {}

  const CudaApi& api() const { return *api_; }
  int number() const { return number_; }
  std::string name() const;
  // Throws if `error` is not 0. what: the call, as "copying to the host".
  void check(int error, const char* what) const;
  // Refuses a stream that is being captured into a graph, with std::invalid_argument. On this device.
  void check_stream(CudaStream stream) const;
  // False in a process that was forked after this object was made, where CUDA does not work.
  bool is_here() const noexcept { return fork_generation() == generation_; }
  // For destructors, on this device: calls free(api). Does nothing in a process that was forked, where CUDA does not
  // work, or where the device has failed.
  template <class Free>
  void free_on(Free free) const noexcept {
    if (!is_here() || api_->enter(number_) != 0) return;
    free(*api_);
    api_->leave();
  }

 private:
  const CudaApi* api_;
  int number_;
  std::uint32_t generation_;
};

// An event of a device, recorded once. Freed by any thread.
class DeviceEvent {
 public:
  // Records what is on the stream so far.
  DeviceEvent(const CudaDevice& device, CudaStream stream);
  ~DeviceEvent();
  DeviceEvent(const DeviceEvent&) = delete;
  DeviceEvent& operator=(const DeviceEvent&) = delete;

  const CudaDevice& device() const { return device_; }
  // These throw what CudaDevice::check throws.
  bool is_complete() const;
  void wait() const;  // blocks until it is complete
  // What is enqueued on the stream from now on begins when this event is complete.
  void hold_up(const CudaDevice& device, CudaStream stream) const;

 private:
  const CudaDevice device_;
  CudaEvent event_ = nullptr;
};

// While it lives, the device is the current one of this thread.
class OnDevice {
 public:
  explicit OnDevice(const CudaDevice& device) : device_(device) {
    device.check(device.api().enter(device.number()), "enter");
  }
  ~OnDevice() { device_.api().leave(); }
  OnDevice(const OnDevice&) = delete;
  OnDevice& operator=(const OnDevice&) = delete;

 private:
  const CudaDevice device_;
};

// A stream of horo's own. Calls but hold_up() and finish() are made with its device as the current one (OnDevice).
class DeviceStream {
 public:
  explicit DeviceStream(const CudaDevice& device);
  ~DeviceStream();
  DeviceStream(const DeviceStream&) = delete;
  DeviceStream& operator=(const DeviceStream&) = delete;

  const CudaDevice& device() const { return device_; }
  CudaStream handle() const { return stream_; }
  void copy_to_host(void* to, const void* from, std::size_t bytes);
  void copy_to_device(void* to, const void* from, std::size_t bytes);
  void copy_on_device(void* to, const void* from, std::size_t bytes);
  // The same for several, by a kernel if all of their memory is of this device. Their memory does not overlap.
  void copy_rows(const std::vector<CopyRow>& rows, bool is_here);
  // Blocks until everything on the stream has ended.
  void finish();

 private:
  const CudaDevice device_;
  CudaStream stream_ = nullptr;
};

// Any thread.
class CudaDevices {
 public:
  explicit CudaDevices(const Config& config) : config_(config) {}

  // Loads the plug-in. Throws what load_cuda() throws, each time.
  void load();
  // Throws std::invalid_argument: there is no such device, or what load() throws.
  CudaDevice device(int number);

 private:
  const Config& config_;
  Mutex mutex_;
  CudaLibrary library_ GUARDED_BY(mutex_);
};

}  // namespace horo
