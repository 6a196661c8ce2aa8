// Staging: collectives of device tensors by the groups of the host. The inputs of a job are copied to host memory, the
// job runs there as one of host tensors, with the same bits, and its results are copied to the device before its Works
// end. Every kind, type, operation and codec works in this way.
#pragma once

#include <cstddef>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "horo/lane/buckets.h"
#include "horo/lane/job.h"
#include "horo/lane/stop_signal.h"
#include "ring/cuda/cuda_device.h"

namespace horo {

// Only the thread that runs the lane's tasks.
class Staging {
 public:
  // is_at_rest: whether the lane has nothing on devices. stop: outlives it.
  Staging(std::shared_ptr<Group> group, StopSignal& stop, std::function<bool()> is_at_rest)
      : group_(std::move(group)), stop_(stop), is_at_rest_(std::move(is_at_rest)) {}

  static bool needs(const Job& job) { return job.first().spec->device != DeviceType::kHost; }
  // The job with host memory in place of the devices'; its spec, and so needs(), stay as they are. Blocks until its
  // inputs have their values there. Throws std::runtime_error for errors of CUDA, and ShutDown after a stop.
  Job copy_in(const Job& job, const Participants& participants);
  // Copies the results of these items to the device, if they are of a job that was brought in, and forgets the job.
  // outcome: of a single item. Returns when the results are there. Throws as copy_in().
  void copy_out(const std::vector<Item>& items, const Outcome& outcome);
  // The same without a result: the Works fail.
  void drop(const std::vector<Item>& items);

 private:
  // A tensor: its memory on the device and on the host.
  struct Tensor {
    CudaDevice device;
    void* device_out = nullptr;
    const std::byte* host_out = nullptr;
    std::size_t bytes = 0;     // that the collective writes
    bool has_varying = false;  // the outcome tells them
  };
  struct Staged {
    Allocation memory;
    std::vector<Tensor> tensors;
  };

  class Copies;

  void wait_for(const DeviceEvent& ready);
  DeviceStream& stream_of(const CudaDevice& device);
  Allocation take_memory(std::size_t bytes, const CudaDevice& device);
  void put_away(Allocation memory);
  std::optional<Staged> forget(const std::vector<Item>& items);

  const std::shared_ptr<Group> group_;
  StopSignal& stop_;
  const std::function<bool()> is_at_rest_;
  std::map<int, DeviceStream> streams_;   // by device
  std::map<const Work*, Staged> staged_;  // by the first Work of the job
  std::size_t most_ = 0;                  // that was staged at once
  SpareMemory spare_;
  std::vector<Allocation> left_;  // is freed when the devices are at rest: to unpin memory may wait for them
};

}  // namespace horo
