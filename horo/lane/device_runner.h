// DeviceRunner: runs collectives of device tensors on the devices, without a wait for them: a Work is issued when its
// collective is enqueued. It is the way of static jobs. What it does not take goes by way of the host (Staging).
#pragma once

#include <deque>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "horo/lane/device_groups.h"
#include "horo/lane/device_turns.h"
#include "horo/lane/job.h"
#include "horo/lane/job_recorder.h"
#include "horo/tensors/tensor_table.h"
#include "ring/cuda/device_memory.h"

namespace horo {

// Objects that it uses; all of them outlive it.
struct DeviceRunnerContext {
  const Config& config;
  Transport& transport;
  DeviceTurns& turns;
  TensorTable& tensor_table;
  JobRecorder& recorder;
  StopSignal& stop;
};

// The thread that runs the lane's tasks.
class DeviceRunner {
 public:
  // ranks: of the world, of the lane's process set.
  DeviceRunner(const DeviceRunnerContext& context, std::vector<int> ranks)
      : context_(context), ranks_(std::move(ranks)), groups_(context.config, context.stop) {}

  // Enqueues the job's collective, and issues its Works. False, on all members: the job goes by way of the host.
  // Throws std::runtime_error (CUDA, NCCL), ShutDown, and what DeviceGroups::of() throws.
  bool run(const Job& job, const Participants& participants, const Collective& like);
  // While devices are at work: throws what keeps them from their end, PeerLost (a rank has left the job) or
  // std::runtime_error (CUDA, NCCL). False: nothing is at work.
  bool watch();
  // Blocks until the devices have done everything, and the other ranks need nothing more of this one. Throws as
  // watch(), and ShutDown.
  void finish();
  // Ends what is on the devices. If that is not done, waits for StopSignal::works_have_failed(), since its results are
  // none. No call follows. Blocks until NCCL has ended.
  void close() noexcept;

 private:
  bool place(const Job& job, const Participants& participants, Collective& collective, DeviceStream& stream);
  void unpack(const Job& job, const Participants& participants, const Collective& collective, DeviceStream& stream);
  void copy(const std::vector<CopyRow>& rows, bool is_here, DeviceStream& stream);
  void issue(const ItemList& items, Outcome outcome, DeviceStream& stream);
  bool find_parts(const Item& item, const Participants& participants, Collective& collective, Outcome& outcome);
  void end_on_host(const ItemList& items, const Collective& collective, Outcome outcome, DeviceStream& stream);

  struct OnStream {
    std::shared_ptr<const DeviceEvent> begun;  // complete when the callers' streams and the jobs before let it begin
    std::shared_ptr<const DeviceEvent> done;
  };

  void check_ranks();
  void forget_done();
  void wait();

  const DeviceRunnerContext context_;
  const std::vector<int> ranks_;
  DeviceGroups groups_;
  TimePoint looked_ = {};                    // when check_ranks() last looked
  std::optional<TimePoint> left_;            // when a rank was first seen to have left while devices are at work
  std::shared_ptr<const DeviceEvent> last_;  // of the last job
  std::deque<OnStream> running_;             // the jobs that were not seen to be done, in the order of the stream
  std::unique_ptr<DeviceScratch> bucket_;    // of the lane's jobs, one after the other on their stream
};

}  // namespace horo
