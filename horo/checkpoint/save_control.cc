#include "horo/checkpoint/save_control.h"

#include "horo/base/time.h"

namespace horo::checkpoint {

void SaveControl::give_up(const std::string& reason) noexcept {
  const MutexLock lock(mutex_);
  if (is_given_up_) return;
  reason_ = reason;
  is_given_up_ = true;
  changed_.notify_all();
}

void SaveControl::check() const {
  const MutexLock lock(mutex_);
  if (is_given_up_) throw GivenUp(reason_);
}

void SaveControl::pause(std::chrono::milliseconds time) {
  const TimePoint until = Clock::now() + time;
  {
    const MutexLock lock(mutex_);
    while (!is_given_up_ && Clock::now() < until) changed_.wait_until(mutex_, until);
  }
  check();
}

}  // namespace horo::checkpoint
