// Steps: the accounting of a session: the waits and step ends of its training thread, and the records of its last
// steps. The thread that ends a step is the training thread; waits of other threads do not count. Where another thread
// ends the next one, that thread begins anew. In a forked child it does nothing.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <thread>
#include <vector>

#include "horo/base/mutex.h"
#include "horo/base/timeline.h"
#include "horo/steps/device_steps.h"
#include "horo/steps/job_times.h"
#include "horo/steps/step_account.h"
#include "horo/steps/step_record.h"
#include "horo/steps/thread_usage.h"

namespace horo {

// Sums over steps.
struct StepSums {
  std::uint64_t steps = 0;
  std::chrono::nanoseconds time{};
  Bars bars{};
  std::int64_t hidden_transfer_ns = 0;
  std::int64_t samples = 0;  // of the steps that know it
};

// Any thread.
class Steps {
 public:
  static constexpr std::uint32_t kEndOfStep = UINT32_MAX;  // in place of the number of a mark
  static constexpr std::size_t kKept = 1'024;              // steps, of 256 bytes
  static constexpr std::size_t kMostStreams = 64;          // with sums of their own

  // written: is called with each record by the training thread, or in finish(), and may not block; may be empty.
  // timeline: of the steps; null: none. It outlives this object. notice: see notice(); any thread calls it; may be
  // empty. told: is called by the training thread when a step ends, whose record may come later; as `written`.
  Steps(bool is_on, std::function<void(const StepRecord&)> written, Timeline* timeline = nullptr,
        std::function<std::optional<TimePoint>()> notice = nullptr, std::function<void()> told = nullptr)
      : jobs_(is_on),
        written_(std::move(written)),
        timeline_(timeline),
        notice_(std::move(notice)),
        told_(std::move(told)) {}

  ~Steps() { finish(); }
  Steps(const Steps&) = delete;
  Steps& operator=(const Steps&) = delete;

  bool is_on() const { return jobs_.is_on(); }
  JobTimes& jobs() { return jobs_; }
  // Whether the calling thread is the one whose waits count.
  bool is_training_thread() const { return training_.load(std::memory_order_relaxed) == std::this_thread::get_id(); }

  bool has_training_thread() const { return training_.load(std::memory_order_relaxed) != std::thread::id(); }

  // ---- The training thread; calls of other threads have no effect.

  void waited(const StepWait& wait) noexcept;
  // It is about to wait; it has waited, and the streams that it uses wait for results of a device from now on.
  void waits() noexcept;
  void streams_wait() noexcept;
  // It has made its mark of this number since the last add() or end(), and uses this stream of a device; or it is about
  // to end the step: number kEndOfStep. Its steps are those of the stream then, and are known one step later. Records
  // events, and does not wait.
  void record(const CudaDevice& device, CudaStream stream, std::uint32_t mark) noexcept;
  void submitted(TimePoint now) noexcept;
  // Keeps marks of the step that runs. They precede those of end().
  void add(std::span<const StepMark> marks) noexcept;

  // The calling thread ends a step. StepEnd::last_submission is not read. A step that a device has not reached is
  // divided at the end of a later one. The first one of a thread begins its first step.
  void end(StepEnd end, std::span<const StepMark> marks) noexcept;

  // Divides all steps: those that a device has not reached by now have no times of it. Any thread: no step follows.
  void finish() noexcept;

  std::optional<StepRecord> last_step() const;
  // The number of the last step, or of the one before while it ends. Never blocks.
  std::uint64_t ended() const { return ended_.load(std::memory_order_relaxed); }
  // The last steps, at most `count` and kKept, in their order.
  std::vector<StepRecord> last(std::size_t count) const;
  StepSums sums() const;
  std::map<std::uint64_t, StepSums> sums_by_stream() const;
  // This rank's skew over all steps, by the rank that it waited for; -1: not known.
  std::map<std::int32_t, Duration> skew_by_rank() const;
  // When `horo run` ends this rank of a static job, if it has told all ranks to leave after a step that this one has
  // ended.
  std::optional<TimePoint> notice() const { return notice_ ? notice_() : std::nullopt; }

 private:
  static constexpr std::size_t kMostMarks = 1 << 16;            // kept between two ends
  static constexpr std::chrono::milliseconds kUsagePeriod{10};  // the kernel is asked no more often

  void begin_thread(TimePoint now) REQUIRES(mutex_);
  Usage used(TimePoint now) REQUIRES(mutex_);
  void divide(const StepEnd& end, std::span<const StepMark> marks, const Usage& used) REQUIRES(mutex_);
  void end_on_device(const StepEnd& end, std::span<const StepMark> marks) REQUIRES(mutex_);
  void divide_reached() REQUIRES(mutex_);
  void keep(const StepRecord& record) REQUIRES(mutex_);
  void draw(const StepRecord& record) REQUIRES(mutex_);

  JobTimes jobs_;
  const std::function<void(const StepRecord&)> written_;
  Timeline* const timeline_;
  const std::function<std::optional<TimePoint>()> notice_;
  const std::function<void()> told_;
  std::atomic<std::thread::id> training_;  // relaxed: what belongs to it is read under the lock
  std::atomic<std::uint64_t> ended_{0};    // relaxed: as above
  mutable Mutex mutex_;
  StepAccount account_ GUARDED_BY(mutex_);
  ThreadUsage usage_ GUARDED_BY(mutex_);
  Usage before_ GUARDED_BY(mutex_);
  TimePoint used_at_ GUARDED_BY(mutex_);  // of before_
  TimePoint last_submission_ GUARDED_BY(mutex_);
  std::vector<StepMark> marks_ GUARDED_BY(mutex_);
  JobTimes::Taken taken_ GUARDED_BY(mutex_);
  DeviceSteps device_steps_ GUARDED_BY(mutex_);
  EndedStep ended_step_ GUARDED_BY(mutex_);  // has memory
  TimePoint host_begin_ GUARDED_BY(mutex_);  // of the step that runs
  std::vector<StepRecord> ring_ GUARDED_BY(mutex_);
  std::uint64_t count_ GUARDED_BY(mutex_) = 0;
  StepSums sums_ GUARDED_BY(mutex_);
  std::map<std::uint64_t, StepSums> by_stream_ GUARDED_BY(mutex_);
};

}  // namespace horo
