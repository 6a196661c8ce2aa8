#include "horo/steps/device_marks.h"

#include <algorithm>
#include <new>
#include <utility>

namespace horo {
namespace {

// While it lives, the device is the current one of this thread, if it can be.
class OnMarkedDevice {
 public:
  explicit OnMarkedDevice(const CudaDevice& device)
      : api_(device.api()), is_here_(device.is_here() && api_.enter(device.number()) == 0) {}
  ~OnMarkedDevice() {
    if (is_here_) api_.leave();
  }
  OnMarkedDevice(const OnMarkedDevice&) = delete;
  OnMarkedDevice& operator=(const OnMarkedDevice&) = delete;
  explicit operator bool() const { return is_here_; }

 private:
  const CudaApi& api_;
  const bool is_here_;
};

}  // namespace

DeviceMarks::~DeviceMarks() {
  device_.free_on([this](const CudaApi& api) {
    for (CudaEvent event : spare_) api.event_destroy(event);
    for (CudaEvent event : {anchor_.event, next_.event}) {
      if (event != nullptr) api.event_destroy(event);
    }
    if (idle_ != nullptr) api.stream_destroy(idle_);
  });
}

bool DeviceMarks::take_event(CudaEvent& event) {
  if (!spare_.empty()) {
    event = spare_.back();
    spare_.pop_back();
    return true;
  }
  if (events_ >= kMostEvents) return false;
  spare_.reserve(events_ + 1);  // clear() does not allocate
  if (device_.api().event_create_timed(&event) != 0) return false;
  ++events_;
  return true;
}

bool DeviceMarks::start_anchor(TimePoint now) {
  if (idle_ == nullptr && device_.api().stream_create(&idle_) != 0) return false;
  if (next_.event == nullptr && !take_event(next_.event)) return false;
  next_.host = next_.recorded = now;
  return device_.api().event_record(next_.event, idle_) == 0;
}

void DeviceMarks::record(DeviceStepMarks& step, DevicePlace place, std::uint32_t index, CudaStream stream) noexcept {
  if (step.is_lost) return;
  step.is_lost = true;
  const OnMarkedDevice here(device_);
  if (!here) return;
  try {
    const CudaApi& api = device_.api();
    bool is_capturing = false;
    if (api.stream_is_capturing(stream, &is_capturing) != 0 || is_capturing) return;
    const TimePoint now = Clock::now();
    const bool is_due = place == DevicePlace::kEnd && next_.event == nullptr && now - anchor_.recorded > kAnchorPeriod;
    if ((!is_anchored_ && next_.event == nullptr) || is_due) {
      if (!start_anchor(now)) return;
    }
    step.marks.push_back({place, index, Clock::now(), nullptr, {}});
    DeviceMark& mark = step.marks.back();
    if (!take_event(mark.event)) return step.marks.pop_back();
    step.is_lost = api.event_record(mark.event, stream) != 0;
  } catch (const std::bad_alloc&) {
  }
}

DeviceMarks::Read DeviceMarks::elapsed(CudaEvent event, std::chrono::nanoseconds& since) const {
  float ms = 0;
  bool are_complete = false;
  if (device_.api().event_elapsed(anchor_.event, event, &ms, &are_complete) != 0) return Read::kFailed;
  if (!are_complete) return Read::kLate;
  since = std::chrono::nanoseconds(static_cast<std::int64_t>(static_cast<double>(ms) * 1e6));
  return Read::kDone;
}

// Only marks that were recorded after an anchor are read by it. A device that has reached the next anchor late would
// move times back: the present one tells the least time, too.
bool DeviceMarks::move_anchor(const DeviceStepMarks& step) {
  if (next_.event == nullptr || (is_anchored_ && step.marks.front().recorded < next_.recorded)) return true;
  bool is_complete = false;
  if (device_.api().event_query(next_.event, &is_complete) != 0) return false;
  if (!is_complete) return true;
  std::chrono::nanoseconds since{};
  if (is_anchored_ && elapsed(next_.event, since) == Read::kDone) {
    next_.host = std::max(next_.host, anchor_.host + since - since / kDriftParts);
  }
  if (anchor_.event != nullptr) spare_.push_back(anchor_.event);
  anchor_ = std::exchange(next_, {});
  is_anchored_ = true;
  return true;
}

bool DeviceMarks::read(DeviceStepMarks& step) noexcept {
  if (step.is_lost || step.marks.empty()) return true;
  const OnMarkedDevice here(device_);
  step.is_lost = !here || !move_anchor(step);
  if (step.is_lost) return true;
  if (!is_anchored_) return false;
  // The last mark is the one that is not reached. Its query, and no time between events, tells of a device that failed.
  bool is_reached = false;
  step.is_lost = device_.api().event_query(step.marks.back().event, &is_reached) != 0;
  if (step.is_lost || !is_reached) return step.is_lost;
  for (auto mark = step.marks.rbegin(); mark != step.marks.rend(); ++mark) {
    std::chrono::nanoseconds since{};
    const Read read = elapsed(mark->event, since);
    if (read == Read::kLate) return false;
    step.is_lost = read == Read::kFailed;
    if (step.is_lost) return true;
    mark->reached = TimePoint(since);  // since the anchor, as yet
  }
  for (const DeviceMark& mark : step.marks) {
    anchor_.host = std::max(anchor_.host, mark.recorded - mark.reached.time_since_epoch());
  }
  for (DeviceMark& mark : step.marks) {
    last_ = std::max(last_, anchor_.host + mark.reached.time_since_epoch());
    mark.reached = last_;
  }
  return true;
}

void DeviceMarks::clear(DeviceStepMarks& step) noexcept {
  for (const DeviceMark& mark : step.marks) spare_.push_back(mark.event);  // has room
  step.marks.clear();
  step.is_lost = false;
}

}  // namespace horo
