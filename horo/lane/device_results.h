// DeviceResults: memory of devices that holds the results of collectives apart from the callers' memory until they are
// committed (RetainedDelivery); and the ends of collectives of device tensors.
#pragma once

#include <cstddef>
#include <map>
#include <memory>
#include <vector>

#include "horo/tensors/tensor_table.h"
#include "ring/collective.h"
#include "ring/cuda/cuda_device.h"
#include "ring/cuda/device_memory.h"

namespace horo {

// Memory that a DeviceResults has lent.
struct HeldMemory {
  std::byte* data = nullptr;
  std::size_t bytes = 0;
};

// What a collective of device tensors has left on its stream.
struct DeviceResult {
  std::shared_ptr<const DeviceEvent> done = {};  // complete when the results are there
  HeldMemory held = {};                          // no data: the results are in the callers' memory, or in `from` alone
  std::vector<CopyRow> rows = {};                // from the held memory to the callers'
  bool is_here = true;                           // the callers' memory is of the same device
  bool fits = true;      // false: the caller has no memory of a device for the result; see end_on_host()
  Buffer from = {};      // where the result is
  Outcome outcome = {};  // of a single item
};

// The thread that runs the lane's tasks, or the engine's when that has ended.
class DeviceResults {
 public:
  // Memory of at least these bytes, of undefined content, for what is enqueued on the stream from now on. Its device is
  // the current one. Throws std::runtime_error: the device has no memory left.
  HeldMemory take(std::size_t bytes, DeviceStream& stream);
  // Enqueues the copies of held results, which are there, to the callers' memory, on a stream of its own. Then issues
  // the Works, whose event is complete when the results are in the callers' memory. Throws std::runtime_error (CUDA).
  void deliver(TensorTable& tensor_table, const ItemList& items, DeviceResult result);
  // The caller has no memory of a device, or too little, for a result whose size all members know: copies the result,
  // which is there, to the host, and ends the Work. Blocks. Throws std::runtime_error (CUDA).
  void end_on_host(TensorTable& tensor_table, const ItemList& items, DeviceResult result);
  // Takes the memory back without that.
  void drop(const DeviceResult& result);
  // Frees all memory, held memory too. Blocks until the copies have ended.
  void free() noexcept;
  // The copies have ended. Throws std::runtime_error (CUDA).
  bool is_idle() const;

 private:
  struct Spare {
    std::byte* data = nullptr;
    std::shared_ptr<const DeviceEvent> read;  // complete when the memory has been read; null: it has
  };
  // What a device has.
  struct Place {
    explicit Place(const CudaDevice& device)
        : stream(device), memory(device, "results that are not committed (HORO_GPU_BACKEND=host needs none)") {}
    DeviceStream stream;
    DeviceBlocks memory;
    std::multimap<std::size_t, Spare> spare = {};  // by size
    std::shared_ptr<const DeviceEvent> last = {};  // of the copies
  };

  Place& place_of(const CudaDevice& device);

  std::map<int, Place> places_;  // by device
};

}  // namespace horo
