// CollectiveRunner: runs the tasks of one lane on the groups of its process set. Its Delivery passes the results to the
// callers.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <vector>

#include "horo/base/config.h"
#include "horo/base/counters.h"
#include "horo/lane/buckets.h"
#include "horo/lane/coded.h"
#include "horo/lane/delivery.h"
#include "horo/lane/device_runner.h"
#include "horo/lane/job.h"
#include "horo/lane/job_recorder.h"
#include "horo/lane/lane_groups.h"
#include "horo/lane/staging.h"
#include "horo/tensors/registry.h"
#include "horo/tensors/tensor_table.h"
#include "ring/group/adasum.h"

namespace horo {

// Objects that a lane uses; all of them outlive it.
struct LaneContext {
  Transport& transport;
  TensorTable& tensor_table;
  Counters& counters;
  const Config& config;
  const Registry& registry;
  Timeline* timeline = nullptr;  // null: none
  JobTimes* times = nullptr;     // the same
  DeviceTurns* turns = nullptr;  // null: tensors on devices go by way of the host
};

// Only the thread that runs the lane's tasks, except where a function says more.
class CollectiveRunner {
 public:
  // `channel` belongs to this lane alone.
  CollectiveRunner(const LaneContext& context, Members members, std::uint32_t channel);

  // Runs the collective of the job, and ends its Works, or retains its result. Throws what Group::run throws, and for a
  // tensor on a device std::runtime_error (CUDA) and ShutDown (stop() was called).
  void run(const Job& job);
  void run(const Ending& ending) { delivery_->end(ending); }
  // Packs the plan.
  void run(const FilledPlan& filled);

  // Whether a thread that waits may run the job. Any thread.
  bool is_short(const Job& job) const;
  // DeviceRunner::watch()
  bool watch_devices();
  // Blocks until devices have done what run() has enqueued. No job follows. Throws as watch_devices(), and ShutDown.
  void finish_devices();
  // Ends what is on devices; what is not done waits for works_have_failed(). The lane's thread, at its end.
  void close_devices() noexcept;
  // run() waits no longer for devices, and throws. It still waits for copies of its own. Any thread.
  void stop() { stop_.stop(); }
  // See StopSignal. Any thread.
  void works_have_failed() { stop_.works_have_failed(); }
  void wait_until_closed(TimePoint until) { stop_.wait_until_closed(until); }
  // False: NCCL has not ended its work after end_patience().
  bool wait_for_end() { return stop_.wait_for_end(end_patience()); }
  std::chrono::milliseconds end_patience() const;
  // Whether a job of device tensors has begun. Any thread.
  bool has_used_devices() const { return has_used_devices_.load(std::memory_order_relaxed); }
  // Frees the memory of results. Follows the last delivery. Blocks until the devices are idle.
  void free_results() noexcept {
    if (devices_) devices_->results().free();
  }
  // Any thread.
  const std::vector<int>& members() const { return groups_.members().ranks; }
  std::shared_ptr<Group> group() const { return groups_.all(); }
  // The engine's thread, when the lane's thread has ended.
  Delivery& delivery() { return *delivery_; }
  const Delivery& delivery() const { return *delivery_; }
  // Continues with the residuals of a drained lane. Precedes the first job.
  void take_residuals(CollectiveRunner& drained) { coded_ = std::move(drained.coded_); }
  // The same for the buffers of a lane that has ended.
  void take_memory(CollectiveRunner& ended) { buckets_.take_memory(ended.buckets_); }

 private:
  void run(const Job& job, const Participants& participants);
  bool run_on_device(const Job& job, const Participants& participants);
  Participants participants_of(const Job& job);
  Collective collective_of(const Job& job, const Participants& participants) const;
  JobResult run_apart(const Job& job, const Participants& participants, const Collective& collective);
  void run_by_tensor(const Job& job, const Participants& participants, const Collective& collective);

  const LaneContext context_;
  const std::uint32_t channel_;
  const bool is_shared_memory_;  // all members share memory
  LaneGroups groups_;
  Buckets buckets_;
  StopSignal stop_;
  Staging staging_;
  JobRecorder recorder_;
  const std::unique_ptr<DeviceRunner> devices_;  // null: see LaneContext::turns
  const std::unique_ptr<Delivery> delivery_;
  Coded coded_{context_.config.kept_tensors};
  AdasumScratch adasum_scratch_;
  std::size_t eager_bytes_ = 0;  // see Participants
  std::atomic<bool> has_used_devices_ = false;
};

}  // namespace horo
