// DeviceRunner: runs collectives of device tensors on the devices, without a wait for them. What it does not take goes
// by way of the host (Staging).
#pragma once

#include <atomic>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "horo/lane/device_groups.h"
#include "horo/lane/device_results.h"
#include "horo/lane/device_turns.h"
#include "horo/lane/job.h"
#include "horo/lane/job_recorder.h"
#include "ring/cuda/device_loans.h"
#include "ring/cuda/device_memory.h"

namespace horo {

// Objects that it uses; all of them outlive it.
struct DeviceRunnerContext {
  const Config& config;
  Counters& counters;
  Transport& transport;
  DeviceTurns& turns;
  JobRecorder& recorder;
  StopSignal& stop;
  // Inputs stay intact: a result is held apart from the callers' memory until results().deliver(). In an elastic job.
  bool retains = false;
};

// The thread that runs the lane's tasks.
class DeviceRunner {
 public:
  // ranks: of the world, of the lane's process set.
  DeviceRunner(const DeviceRunnerContext& context, std::vector<int> ranks)
      : context_(context), ranks_(std::move(ranks)) {}

  // Enqueues the job's collective. Nothing, on all members: the job goes by way of the host. Throws std::runtime_error
  // (CUDA, NCCL), ShutDown, and what DeviceGroups::of() throws.
  std::optional<DeviceResult> run(const Job& job, const Participants& participants, const Collective& like);
  // Blocks until what run() has returned so far is complete. Throws as watch(), and ShutDown.
  void wait_for_results();
  DeviceResults& results() { return results_; }
  // run() has returned results that are held apart. Any thread.
  bool holds_results() const { return holds_results_.load(std::memory_order_relaxed); }
  // Nothing that run() has enqueued is left on the devices. Throws std::runtime_error (CUDA).
  bool is_at_rest() const;
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
  // A job that was not seen to be done.
  struct OnStream {
    std::shared_ptr<const DeviceEvent> begun;  // complete when the callers' streams and the jobs before let it begin
    std::shared_ptr<const DeviceEvent> done;
    std::vector<int> ranks;         // two, of a message; else empty: all
    std::optional<TimePoint> left;  // when one of them was first seen to have left the job
  };

  DeviceGroups& groups_of(const Job& job);
  void abort_groups() noexcept;
  bool find_parts(const Item& item, const Participants& participants, Collective& collective, Outcome& outcome);
  Job with_loan(const Job& job, const DeviceStream& stream, Outcome& outcome);
  std::byte* take(std::size_t bytes, DeviceStream& stream, DeviceResult& result);
  void forget_done();
  void wait_for_callers() noexcept;
  void wait_for_rest() noexcept;
  void check_ranks();

  const DeviceRunnerContext context_;
  const std::vector<int> ranks_;
  std::map<std::vector<int>, DeviceGroups> groups_;         // by OnStream::ranks
  TimePoint looked_ = {};                                   // when check_ranks() last looked
  std::map<int, std::shared_ptr<const DeviceEvent>> last_;  // by device, of its last job
  std::deque<OnStream> running_;                            // in the order of the stream
  std::map<int, DeviceScratch> buckets_;  // by device, of its jobs, one after the other on their stream
  DeviceResults results_;
  const std::shared_ptr<DeviceLoans> loans_ = std::make_shared<DeviceLoans>();
  std::atomic<bool> holds_results_ = false;
};

}  // namespace horo
