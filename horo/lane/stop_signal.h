// StopSignal: ends the waits of a lane's thread for devices, which may wait for a rank that is lost.
#pragma once

#include <algorithm>

#include "horo/base/error.h"
#include "horo/base/mutex.h"
#include "horo/base/time.h"

namespace horo {

// Any thread.
class StopSignal {
 public:
  void stop() {
    MutexLock lock(mutex_);
    is_stopped_ = true;
    changed_.notify_all();
  }
  // The Works that were in flight at stop() have failed: what devices write from now on counts for nothing.
  void works_have_failed() {
    MutexLock lock(mutex_);
    if (!have_failed_) failed_ = Clock::now();
    have_failed_ = true;
    changed_.notify_all();
  }

  // Blocks for this time. Throws ShutDown after stop().
  void pause(Duration time) {
    MutexLock lock(mutex_);
    if (!is_stopped_) changed_.wait_until(mutex_, Clock::now() + time);
    if (is_stopped_) throw ShutDown("the collectives of this rank were stopped while a device was at work");
  }
  // The same, after stop() too.
  void rest(Duration time) noexcept {
    MutexLock lock(mutex_);
    changed_.wait_until(mutex_, Clock::now() + time);
  }
  // Between these two a library ends its work on devices, by calls that may hang.
  void begin_end() { set_end(Clock::now()); }
  void finish_end() { set_end(kNever); }
  // Follows works_have_failed(), and returns after close(). False: such a call takes longer than `most`.
  bool wait_for_end(Duration most) {
    MutexLock lock(mutex_);
    while (!is_closed_) {
      const TimePoint until = end_began_ == kNever ? kNever : std::max(end_began_, failed_) + most;
      if (Clock::now() >= until) return false;
      until == kNever ? changed_.wait(mutex_) : void(changed_.wait_until(mutex_, until));
    }
    return true;
  }
  // The devices are at rest. wait_until_closed() returns then, or at `until`.
  void close() {
    MutexLock lock(mutex_);
    is_closed_ = true;
    changed_.notify_all();
  }
  void wait_until_closed(TimePoint until) {
    MutexLock lock(mutex_);
    while (!is_closed_ && Clock::now() < until) changed_.wait_until(mutex_, until);
  }
  // Returns after works_have_failed().
  void wait_until_failed() {
    MutexLock lock(mutex_);
    while (!have_failed_) changed_.wait(mutex_);
  }

 private:
  static constexpr TimePoint kNever = TimePoint::max();

  void set_end(TimePoint began) {
    MutexLock lock(mutex_);
    end_began_ = began;
    changed_.notify_all();
  }

  Mutex mutex_;
  CondVar changed_;
  bool is_stopped_ GUARDED_BY(mutex_) = false;
  bool have_failed_ GUARDED_BY(mutex_) = false;
  bool is_closed_ GUARDED_BY(mutex_) = false;
  TimePoint failed_ GUARDED_BY(mutex_);
  TimePoint end_began_ GUARDED_BY(mutex_) = kNever;
};

}  // namespace horo
