// DeviceResults: memory of devices that holds the results of collectives apart from the callers' memory until they are
// committed (RetainedDelivery).
#pragma once

#include <cstddef>
#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "ring/cuda/cuda_device.h"
#include "ring/cuda/device_memory.h"

namespace horo {

// What a collective of device tensors has left on its stream.
struct DeviceResult {
  // Complete when the results are there. The device is that of the memory.
  std::shared_ptr<const DeviceEvent> done;
  std::byte* memory = nullptr;     // null: the results are in the callers' memory
  std::size_t bytes = 0;           // of the memory
  std::vector<CopyRow> rows = {};  // from the memory to the callers'
  bool is_here = true;             // the callers' memory is of the same device
};

// The thread that runs the lane's tasks, or the engine's when that has ended.
class DeviceResults {
 public:
  struct Memory {
    std::byte* data = nullptr;
    std::size_t bytes = 0;
  };

  // Memory of at least these bytes, of undefined content, for what is enqueued on the stream from now on. Its device is
  // the current one. Throws std::runtime_error: the device has no memory left.
  Memory take(std::size_t bytes, DeviceStream& stream);
  // Enqueues the copies to the callers' memory, on a stream of its own. `done` has completed. Returns an event that is
  // complete when the results are there. Throws std::runtime_error (CUDA).
  std::shared_ptr<const DeviceEvent> deliver(DeviceResult result);
  // Takes the memory back without that.
  void drop(DeviceResult result);
  // The copies have ended.
  bool is_idle() const { return !last_ || last_->is_complete(); }

 private:
  struct Spare {
    std::byte* data = nullptr;
    std::shared_ptr<const DeviceEvent> read;  // complete when the memory has been read; null: it has
  };
  // What a device has.
  struct Place {
    explicit Place(const CudaDevice& device) : stream(device), memory(device) {}
    DeviceStream stream;
    DeviceBlocks memory;
    std::multimap<std::size_t, Spare> spare = {};  // by size
  };

  Place& place_of(const CudaDevice& device);

  std::map<int, Place> places_;  // by device
  std::shared_ptr<const DeviceEvent> last_;
};

}  // namespace horo
