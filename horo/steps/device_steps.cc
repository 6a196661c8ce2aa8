#include "horo/steps/device_steps.h"

#include <algorithm>
#include <new>
#include <utility>

namespace horo {
namespace {

constexpr std::uint32_t bit_of(MarkKind kind) {
  return std::uint32_t{1} << static_cast<std::uint32_t>(kind);
}

// What the stream has reached, by place.
struct Reached {
  std::vector<TimePoint> marks, begins, ends, held;  // min(): no mark
  TimePoint end = TimePoint::min();

  explicit Reached(const EndedStep& step)
      : marks(step.marks.size(), TimePoint::min()),
        begins(step.waits.waits.size(), TimePoint::min()),
        ends(begins),
        held(begins) {
    for (const DeviceMark& mark : step.device.marks) {
      if (mark.place == DevicePlace::kEnd) {
        end = mark.reached;
      } else if (std::vector<TimePoint>& places = of(mark.place); mark.index < places.size()) {
        places[mark.index] = mark.reached;
      }
    }
  }

  std::vector<TimePoint>& of(DevicePlace place) {
    if (place == DevicePlace::kMark) return marks;
    if (place == DevicePlace::kWaitBegin) return begins;
    return place == DevicePlace::kWaitEnd ? ends : held;
  }
};

// Whether the stream has reached everything that the step is divided by. Collections are of the host.
bool is_whole(const EndedStep& step, const Reached& reached) {
  if (step.device.is_lost || reached.end == TimePoint::min()) return false;
  for (std::size_t i = 0; i < step.marks.size(); ++i) {
    if (step.marks[i].kind != MarkKind::kCollection && reached.marks[i] == TimePoint::min()) return false;
  }
  const auto has = [](TimePoint at) { return at != TimePoint::min(); };
  return std::ranges::all_of(reached.begins, has) && std::ranges::all_of(reached.ends, has);
}

}  // namespace

void move_to_device(EndedStep& step, TimePoint begin) {
  const Reached reached(step);
  if (!is_whole(step, reached)) {
    step.end.kinds &= ~(bit_of(MarkKind::kBackward) | bit_of(MarkKind::kOptimizer));
    step.end.flags |= kNoDeviceTime;
    return;
  }
  step.end.flags |= kDeviceTime;
  step.end.waits_elsewhere = false;
  step.end.at = reached.end;
  for (std::size_t i = 0; i < step.marks.size(); ++i) {
    StepMark& mark = step.marks[i];
    mark.at = mark.kind == MarkKind::kCollection ? mark.at + (begin - step.begin) : reached.marks[i];
  }
  StepWaits moved;
  for (std::size_t i = 0; i < step.waits.waits.size(); ++i) {
    StepWait wait = step.waits.waits[i];
    wait.begin = reached.begins[i];
    wait.end = reached.ends[i];
    moved.waits.push_back(wait);
    if (reached.held[i] == TimePoint::min()) continue;
    moved.waits.push_back({wait.end, reached.held[i], wait.lane, true, true});
    step.end.waits_on_device = true;
  }
  step.waits.waits = std::move(moved.waits);
}

// A step of the host stays one.
void DeviceSteps::lose(DeviceStepMarks& step) noexcept {
  const bool is_lost = step.is_lost || !step.marks.empty();
  if (marks_) marks_->clear(step);
  step.is_lost = is_lost;
}

void DeviceSteps::lose_all() noexcept {
  for (EndedStep& step : steps_) lose(step.device);
}

bool DeviceSteps::is_on(const CudaDevice& device) noexcept {
  if (marks_ && marks_->device() == device.number()) return true;
  lose_all();  // the events are those of the other device
  lose(running_);
  try {
    marks_ = std::make_unique<DeviceMarks>(device);
    return true;
  } catch (const std::bad_alloc&) {
    return false;
  }
}

void DeviceSteps::record(const CudaDevice& device, CudaStream stream, std::uint32_t mark) noexcept {
  if (!is_on(device)) return;
  stream_ = stream;
  has_stream_ = true;
  marks_->record(running_, DevicePlace::kMark, mark, stream);
}

void DeviceSteps::record_end(const CudaDevice& device, CudaStream stream) noexcept {
  if (!is_on(device)) return;
  stream_ = stream;
  has_stream_ = true;
  marks_->record(running_, DevicePlace::kEnd, 0, stream);
}

void DeviceSteps::record(DevicePlace place, std::uint32_t index) noexcept {
  if (marks_ && has_stream_) marks_->record(running_, place, index, stream_);
}

void DeviceSteps::add(EndedStep& step) {
  if (!spare_.empty()) {
    steps_.push_back(std::move(spare_.back()));
    spare_.pop_back();
  } else {
    steps_.emplace_back();
  }
  // Both have memory that is used again.
  std::swap(steps_.back(), step);
  std::swap(steps_.back().device, running_);
  const bool has_ended = std::ranges::any_of(steps_.back().device.marks,
                                             [](const DeviceMark& mark) { return mark.place == DevicePlace::kEnd; });
  if (!has_ended) has_stream_ = false;
}

EndedStep* DeviceSteps::next() noexcept {
  if (steps_.empty()) return nullptr;
  EndedStep& step = steps_.front();
  const bool is_read = step.device.marks.empty() || (marks_ && marks_->read(step.device));
  if (!is_read && steps_.size() <= kMost) return nullptr;
  step.device.is_lost = step.device.is_lost || !is_read;
  return &step;
}

void DeviceSteps::pop() noexcept {
  lose(steps_.front().device);
  steps_.front().device.is_lost = false;
  if (spare_.size() < kMost) {
    try {
      spare_.push_back(std::move(steps_.front()));
    } catch (const std::bad_alloc&) {
    }
  }
  steps_.pop_front();
}

void DeviceSteps::clear() noexcept {
  lose(running_);
  running_.is_lost = false;
  while (!steps_.empty()) pop();
  has_stream_ = false;
}

}  // namespace horo
