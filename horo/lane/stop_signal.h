// StopSignal: ends the waits of a lane's thread for devices, which may wait for a rank that is lost.
#pragma once

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
    have_failed_ = true;
    changed_.notify_all();
  }

  // Blocks for this time. Throws ShutDown after stop().
  void pause(Duration time) {
    MutexLock lock(mutex_);
    if (!is_stopped_) changed_.wait_until(mutex_, Clock::now() + time);
    if (is_stopped_) throw ShutDown("the collectives of this rank were stopped while a device was at work");
  }
  // What devices do is being ended, by calls that may hang.
  void begin_end() {
    MutexLock lock(mutex_);
    end_began_ = Clock::now();
    changed_.notify_all();
  }
  // Returns after close(). False: these calls take longer than `most`.
  bool wait_for_end(Duration most) {
    MutexLock lock(mutex_);
    while (!is_closed_ && Clock::now() < end_began_ + most) {
      end_began_ == kNever ? changed_.wait(mutex_) : void(changed_.wait_until(mutex_, end_began_ + most));
    }
    return is_closed_;
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
  static constexpr TimePoint kNever = TimePoint() + std::chrono::hours(1'000'000);

  Mutex mutex_;
  CondVar changed_;
  bool is_stopped_ GUARDED_BY(mutex_) = false;
  bool have_failed_ GUARDED_BY(mutex_) = false;
  bool is_closed_ GUARDED_BY(mutex_) = false;
  TimePoint end_began_ GUARDED_BY(mutex_) = kNever;
};

}  // namespace horo
