// DeviceMarks: when the stream of a device has reached marks of the training thread, in times of the host. A timing
// event is recorded at each mark and read at a later step, by queries: the host never waits for the device. The clock
// of the device is tied to the host's by an anchor: an event on an idle stream, anew each second. A stream reaches no
// mark before it is recorded; this bounds the offset of the clocks from one side, and the tightest bound holds.
#pragma once

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "horo/base/time.h"
#include "ring/cuda/cuda_device.h"

namespace horo {

// Where a mark is in its step.
enum class DevicePlace : std::uint8_t { kMark, kWaitBegin, kWaitEnd, kHeldUp, kEnd };

struct DeviceMark {
  DevicePlace place = DevicePlace::kMark;
  std::uint32_t index = 0;  // of the StepMark or of the StepWait
  TimePoint recorded;       // on the host, just before
  CudaEvent event = nullptr;
  TimePoint reached;  // by the stream; set by read()
};

// Those of one step, in the order in which they were recorded.
struct DeviceStepMarks {
  std::vector<DeviceMark> marks;
  bool is_lost = false;  // a mark could not be recorded: the step has no times of the device
};

// One thread at a time. No function throws, or waits for the device.
class DeviceMarks {
 public:
  static constexpr std::size_t kMostEvents = 2'048;        // in use
  static constexpr std::chrono::seconds kAnchorPeriod{1};  // between anchors
  static constexpr std::int64_t kDriftParts = 10'000;  // of a time that the two clocks differ by one, at most: 100 ppm

  explicit DeviceMarks(const CudaDevice& device) : device_(device) {}
  ~DeviceMarks();
  DeviceMarks(const DeviceMarks&) = delete;
  DeviceMarks& operator=(const DeviceMarks&) = delete;

  int device() const { return device_.number(); }
  // Appends a mark for what is on the stream so far, or loses the step: no event is left, the stream is captured into a
  // graph, or the device has failed.
  void record(DeviceStepMarks& step, DevicePlace place, std::uint32_t index, CudaStream stream) noexcept;
  // Sets the times of all marks, which do not descend, also over steps. False: the device has not reached one of them
  // yet. A failure of the device loses the step. Steps in their order.
  bool read(DeviceStepMarks& step) noexcept;
  // The events of the marks are used again.
  void clear(DeviceStepMarks& step) noexcept;

  std::size_t events() const { return events_; }  // that exist

 private:
  struct Anchor {
    CudaEvent event = nullptr;
    TimePoint host;      // when its stream has reached it: the least time that is possible
    TimePoint recorded;  // on the host
  };

  bool take_event(CudaEvent& event);
  bool start_anchor(TimePoint now);
  bool move_anchor(const DeviceStepMarks& step);
  // From the anchor to the event.
  enum class Read : std::uint8_t { kDone, kLate, kFailed };
  Read elapsed(CudaEvent event, std::chrono::nanoseconds& since) const;

  const CudaDevice device_;
  CudaStream idle_ = nullptr;
  std::size_t events_ = 0;
  std::vector<CudaEvent> spare_;
  Anchor anchor_, next_;  // without an event: there is none
  bool is_anchored_ = false;
  TimePoint last_ = TimePoint::min();  // that was read
};

}  // namespace horo
