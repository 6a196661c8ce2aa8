#include "horo/steps/steps.h"

#include <algorithm>
#include <new>
#include <utility>

namespace horo {
namespace {

std::int64_t difference(std::int64_t now, std::int64_t before) {
  return now == kNotKnown || before == kNotKnown ? kNotKnown : std::max<std::int64_t>(now - before, 0);
}

void add_to(StepSums& sums, const StepRecord& record) {
  ++sums.steps;
  sums.time += record.end - record.begin;
  for (std::size_t bar = 0; bar < kBars; ++bar) sums.bars[bar] += record.bars[bar];
  sums.hidden_transfer_ns += std::max<std::int64_t>(record.hidden_transfer_ns, 0);
  sums.samples += std::max<std::int64_t>(record.samples, 0);
}

}  // namespace

void Steps::waited(const StepWait& wait) noexcept {
  if (!is_training_thread()) return;
  MutexLock lock(mutex_);
  if (!is_training_thread()) return;
  device_steps_.record(DevicePlace::kWaitEnd, static_cast<std::uint32_t>(account_.waits()));
  account_.add(wait);
}

void Steps::waits() noexcept {
  if (!is_training_thread()) return;
  MutexLock lock(mutex_);
  device_steps_.record(DevicePlace::kWaitBegin, static_cast<std::uint32_t>(account_.waits()));
}

void Steps::streams_wait() noexcept {
  if (!is_training_thread()) return;
  MutexLock lock(mutex_);
  if (account_.waits() == 0) return;
  device_steps_.record(DevicePlace::kHeldUp, static_cast<std::uint32_t>(account_.waits() - 1));
}

void Steps::record(const CudaDevice& device, CudaStream stream, std::uint32_t mark) noexcept {
  if (!is_on() || !is_training_thread()) return;
  MutexLock lock(mutex_);
  if (mark == kEndOfStep) return device_steps_.record_end(device, stream);
  device_steps_.record(device, stream, static_cast<std::uint32_t>(marks_.size() + mark));
}

void Steps::submitted(TimePoint now) noexcept {
  if (!is_training_thread()) return;
  MutexLock lock(mutex_);
  if (is_training_thread()) last_submission_ = now;
}

void Steps::add(std::span<const StepMark> marks) noexcept {
  if (!is_training_thread()) return;
  MutexLock lock(mutex_);
  try {
    if (is_training_thread() && marks_.size() + marks.size() <= kMostMarks) {
      marks_.insert(marks_.end(), marks.begin(), marks.end());
    }
  } catch (const std::bad_alloc&) {  // the time is that of the marks around them
  }
}

void Steps::begin_thread(TimePoint now) {
  training_.store(std::this_thread::get_id(), std::memory_order_relaxed);
  usage_.begin();
  before_ = usage_.now();
  used_at_ = now;
  account_.begin(now);
  device_steps_.clear();
  host_begin_ = now;
  marks_.clear();
  last_submission_ = {};
  jobs_.take(now, taken_);
}

void Steps::end(StepEnd end, std::span<const StepMark> marks) noexcept {
  if (!is_on()) return;
  MutexLock lock(mutex_);
  try {
    if (!is_training_thread()) return begin_thread(end.at);
    jobs_.take(end.at, taken_);
    end.last_submission = last_submission_;
    std::span<const StepMark> all = marks;
    if (!marks_.empty()) {
      marks_.insert(marks_.end(), marks.begin(), marks.end());
      all = marks_;
    }
    if (device_steps_.are_used()) {
      end_on_device(end, all);
    } else {
      divide(end, all, used(end.at));
    }
    marks_.clear();
    host_begin_ = end.at;
    if (told_) told_();
  } catch (const std::bad_alloc&) {
    account_.begin(end.at);
  }
}

// Takes what is in taken_, and the waits of the account.
void Steps::divide(const StepEnd& end, std::span<const StepMark> marks, const Usage& used) {
  const bool is_drawn = timeline_ != nullptr && timeline_->is_on();
  account_.keep_pieces(is_drawn);
  StepRecord record = account_.end(end, marks, taken_);
  record.cpu_ns = used.cpu_ns;
  record.run_queue_ns = used.run_queue_ns;
  record.switches = static_cast<std::int32_t>(used.switches);
  if (is_drawn) draw(record);
  keep(record);
}

void Steps::end_on_device(const StepEnd& end, std::span<const StepMark> marks) {
  EndedStep& step = ended_step_;
  step.end = end;
  step.begin = host_begin_;
  step.marks.assign(marks.begin(), marks.end());
  step.waits.waits.clear();
  step.waits.flags = 0;
  account_.exchange(step.waits);
  std::swap(step.done, taken_);
  step.used = used(end.at);
  device_steps_.add(step);
  divide_reached();
}

void Steps::divide_reached() {
  while (EndedStep* const next = device_steps_.next()) {
    const bool is_of_device = next->device.is_lost || !next->device.marks.empty();
    if (is_of_device) move_to_device(*next, account_.step_begin());
    account_.exchange(next->waits);
    std::swap(next->done, taken_);
    divide(next->end, next->marks, next->used);
    device_steps_.pop();
  }
}

// Since the last call that has had figures. The calls of the kernel take 2 us, and 13 us where the caches are those of
// a training step.
Usage Steps::used(TimePoint now) {
  if (now - used_at_ < kUsagePeriod) return {};
  const Usage before = std::exchange(before_, usage_.now());
  used_at_ = now;
  return {difference(before_.cpu_ns, before.cpu_ns), difference(before_.run_queue_ns, before.run_queue_ns),
          difference(before_.switches, before.switches)};
}

void Steps::draw(const StepRecord& record) {
  TimelineStep step{record.begin, record.end, {}};
  for (const StepPiece& piece : account_.pieces()) {
    step.parts.push_back({kBarNames[index_of(piece.bar)], piece.bar > Bar::kBetween, piece.begin, piece.end});
  }
  timeline_->add(std::move(step));
}

void Steps::keep(const StepRecord& record) {
  StepRecord numbered = record;
  numbered.number = ++count_;
  add_to(sums_, numbered);
  const bool has_room = by_stream_.contains(record.stream) || by_stream_.size() < kMostStreams;
  if (has_room) add_to(by_stream_[record.stream], numbered);
  if (written_) written_(numbered);
  if (ring_.size() < kKept) {
    ring_.push_back(numbered);
  } else {
    ring_[(count_ - 1) % kKept] = numbered;
  }
  ended_.store(count_, std::memory_order_relaxed);
}

std::vector<StepRecord> Steps::last(std::size_t count) const {
  MutexLock lock(mutex_);
  std::vector<StepRecord> found;
  const std::size_t most = std::min(count, ring_.size());
  for (std::size_t i = most; i > 0; --i) found.push_back(ring_[(count_ - i) % kKept]);
  return found;
}

void Steps::finish() noexcept {
  MutexLock lock(mutex_);
  try {
    divide_reached();
    device_steps_.lose_all();
    divide_reached();
  } catch (const std::bad_alloc&) {  // these steps are not known
  }
}

std::optional<StepRecord> Steps::last_step() const {
  const std::vector<StepRecord> found = last(1);
  return found.empty() ? std::nullopt : std::optional(found.front());
}

StepSums Steps::sums() const {
  MutexLock lock(mutex_);
  return sums_;
}

std::map<std::uint64_t, StepSums> Steps::sums_by_stream() const {
  MutexLock lock(mutex_);
  return by_stream_;
}

std::map<std::int32_t, Duration> Steps::skew_by_rank() const {
  MutexLock lock(mutex_);
  return account_.skew_by_rank();
}

}  // namespace horo
