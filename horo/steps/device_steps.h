// DeviceSteps: steps whose marks are on the stream of a device. A host that launches kernels is ahead of the device, so
// such a step lasts from when the stream reaches its begin until it reaches its end, and so does each of its marks and
// waits. The device may reach them long after the host: a step is divided when a later one ends, at most kMost steps
// later; what is not known by then has no times of the device, and where the host was ahead of the device, no length:
// its time is that of the next step.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <span>
#include <vector>

#include "horo/steps/device_marks.h"
#include "horo/steps/job_times.h"
#include "horo/steps/step_account.h"
#include "horo/steps/thread_usage.h"

namespace horo {

// A step that has ended on the host.
struct EndedStep {
  StepEnd end;
  TimePoint begin;  // on the host
  std::vector<StepMark> marks;
  StepWaits waits;
  JobTimes::Taken done;
  Usage used;  // in the step
  DeviceStepMarks device;
};

// Moves marks, waits and the end of the step to the times at which the stream has reached them. begin: of the step, on
// the device. Where the compute stream waits for results after a wait of the host, that is a wait of its own. Without
// times of the device, those of the host stay, and what the device does then is not known.
void move_to_device(EndedStep& step, TimePoint begin);

// The training thread, or the holder of a lock.
class DeviceSteps {
 public:
  static constexpr std::size_t kMost = 64;  // steps that are not divided

  // A mark of the step that runs: its stream is the compute stream from now on.
  void record(const CudaDevice& device, CudaStream stream, std::uint32_t mark) noexcept;
  // The step that runs ends.
  void record_end(const CudaDevice& device, CudaStream stream) noexcept;
  // The training thread is in the place, on the host. Without a compute stream nothing is recorded.
  void record(DevicePlace place, std::uint32_t index) noexcept;

  // Whether steps go this way: the one that ends has marks of a device, or one before it is not divided.
  bool are_used() const { return !running_.marks.empty() || running_.is_lost || !steps_.empty(); }
  // Adds the step that ends on the host. What is in it is used again.
  void add(EndedStep& step);
  // The oldest step that is not divided, with its times; null: the device has not reached its end.
  EndedStep* next() noexcept;
  void pop() noexcept;  // next()
  // None of the steps that have ended and were not taken by pop() has times of the device.
  void lose_all() noexcept;
  // Forgets all steps, and the one that runs.
  void clear() noexcept;

  std::size_t events() const { return marks_ ? marks_->events() : 0; }  // that exist

 private:
  bool is_on(const CudaDevice& device) noexcept;
  void lose(DeviceStepMarks& step) noexcept;

  std::unique_ptr<DeviceMarks> marks_;
  CudaStream stream_ = nullptr;
  bool has_stream_ = false;
  DeviceStepMarks running_;
  std::deque<EndedStep> steps_;
  std::vector<EndedStep> spare_;
};

}  // namespace horo
