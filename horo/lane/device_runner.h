// DeviceRunner: runs collectives of device tensors on the devices, without a wait for them: a Work is issued when its
// collective is enqueued. It is the way of static jobs. What it does not take goes by way of the host (Staging).
#pragma once

#include <memory>
#include <vector>

#include "horo/lane/device_groups.h"
#include "horo/lane/device_turns.h"
#include "horo/lane/job.h"
#include "horo/lane/job_recorder.h"
#include "horo/tensors/tensor_table.h"
#include "ring/cuda/device_memory.h"

namespace horo {

// The thread that runs the lane's tasks. The objects outlive it.
class DeviceRunner {
 public:
  DeviceRunner(const Config& config, DeviceTurns& turns, TensorTable& tensor_table, JobRecorder& recorder,
               StopSignal& stop)
      : turns_(turns), tensor_table_(tensor_table), recorder_(recorder), stop_(stop), groups_(config, stop) {}

  // Enqueues the job's collective, and issues its Works. False, on all members: the job goes by way of the host.
  // Throws std::runtime_error (CUDA, NCCL), ShutDown, and what DeviceGroups::of() throws.
  bool run(const Job& job, const Participants& participants, const Collective& like);
  // Blocks until the devices have done everything. Throws std::runtime_error (CUDA) and ShutDown.
  void finish();
  // Ends what is on the devices. If that is not done, waits for StopSignal::works_have_failed(), since its results are
  // none. No call follows.
  void close() noexcept;

 private:
  bool place(const Job& job, const Participants& participants, Collective& collective, DeviceStream& stream);
  void unpack(const Job& job, const Participants& participants, const Collective& collective, DeviceStream& stream);
  void copy(const std::vector<CopyRow>& rows, bool is_here, DeviceStream& stream);
  void issue(const ItemList& items, DeviceStream& stream);

  DeviceTurns& turns_;
  TensorTable& tensor_table_;
  JobRecorder& recorder_;
  StopSignal& stop_;
  DeviceGroups groups_;
  std::shared_ptr<const DeviceEvent> last_;  // of the last job
  std::unique_ptr<DeviceScratch> bucket_;    // of the lane's jobs, one after the other on their stream
};

}  // namespace horo
