#include "horo/work.h"

#include "horo/base/check.h"

namespace horo {

bool Work::finished() const {
  MutexLock lock(mutex_);
  return finished_;
}

bool Work::wait_until(TimePoint until) const {
  MutexLock lock(mutex_);
  while (!finished_ && Clock::now() < until) changed_.wait_until(mutex_, until);
  return finished_;
}

const Outcome& Work::outcome() const NO_THREAD_SAFETY_ANALYSIS {
  MutexLock lock(mutex_);
  HORO_CHECK(finished_);
  if (failure_) failure_->raise();
  return outcome_;  // never written again: it may be read without the lock from now on
}

void Work::finish(Outcome outcome) {
  MutexLock lock(mutex_);
  HORO_CHECK(!finished_);
  finished_ = true;
  outcome_ = std::move(outcome);
  changed_.notify_all();
}

void Work::fail(FailurePtr failure) {
  MutexLock lock(mutex_);
  HORO_CHECK(!finished_);
  finished_ = true;
  failure_ = std::move(failure);
  changed_.notify_all();
}

}  // namespace horo
