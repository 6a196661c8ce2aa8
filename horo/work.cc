#include "horo/work.h"

#include <array>

#include "horo/base/check.h"
#include "horo/base/mutex.h"

namespace horo {
namespace {

// What is waited at. Works share a few: who is woken in vain looks at his own work and goes on waiting.
struct Bell {
  Mutex mutex;
  CondVar rung;
};

Bell& bell_of(Key key) {
  static auto& bells = *new std::array<Bell, 64>;  // never freed: threads may wait while the process exits
  return bells[key % bells.size()];
}

}  // namespace

bool Work::finished() const {
  return finished_.load(std::memory_order_acquire);
}

bool Work::wait_until(TimePoint until) const {
  if (finished()) return true;
  Bell& bell = bell_of(key_);
  MutexLock lock(bell.mutex);
  while (!finished() && Clock::now() < until) bell.rung.wait_until(bell.mutex, until);
  return finished();
}

const Outcome& Work::outcome() const {
  HORO_CHECK(finished());
  if (failure_) failure_->raise();
  return outcome_;
}

void Work::finish(Outcome outcome) {
  HORO_CHECK(!finished());
  outcome_ = std::move(outcome);
  end();
}

void Work::fail(FailurePtr failure) {
  HORO_CHECK(!finished());
  failure_ = std::move(failure);
  end();
}

void Work::end() noexcept {
  Bell& bell = bell_of(key_);
  MutexLock lock(bell.mutex);
  finished_.store(true, std::memory_order_release);
  bell.rung.notify_all();
}

}  // namespace horo
