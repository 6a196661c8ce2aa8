#include "horo/tensors/work.h"

#include <pthread.h>

#include <array>
#include <bitset>
#include <cstddef>
#include <new>
#include <tuple>

#include "horo/base/check.h"
#include "horo/base/mutex.h"
#include "horo/tensors/item.h"

namespace horo {
namespace {

// A condition variable that several Works share. A thread that is woken for another Work continues to wait.
struct Bell {
  Mutex mutex;
  CondVar rung;
};
using Bells = std::array<Bell, 64>;

// Never destroyed, because threads may wait while the process exits. A forked child constructs new ones, because the
// threads that held or waited for the old ones do not exist there.
Bells& make_bells() noexcept {
  alignas(Bells) static std::byte memory[sizeof(Bells)];
  return *new (memory) Bells;
}

Bells& first_bells() noexcept {
  ::pthread_atfork(nullptr, nullptr, [] { make_bells(); });
  return make_bells();
}

// Made at the start of the process and not at the first use: a child forked during the first use would wait for ever.
Bells& bells = first_bells();

Bell& bell_of(Key key) noexcept {
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

// A waiting thread checks its Work while it holds the mutex of the bell. So it either sees the end, or is woken by the
// notification, which follows a lock of the mutex.
void Work::finish_all(std::span<const Item> items) noexcept {
  std::bitset<std::tuple_size_v<Bells>> to_ring;
  for (const Item& item : items) {
    HORO_CHECK(!item.work->finished());
    to_ring.set(item.work->key_ % to_ring.size());
    item.work->finished_.store(true, std::memory_order_release);
  }
  for (Key key = 0; key < to_ring.size(); ++key) {
    if (!to_ring.test(key)) continue;
    Bell& bell = bell_of(key);
    { MutexLock lock(bell.mutex); }
    bell.rung.notify_all();
  }
}

void Work::fail(FailurePtr failure) {
  HORO_CHECK(!finished());
  failure_ = std::move(failure);
  end();
}

// The mutex is free at the notification, so that woken threads do not block on it. They may free this Work before it.
void Work::end() noexcept {
  Bell& bell = bell_of(key_);
  {
    MutexLock lock(bell.mutex);
    finished_.store(true, std::memory_order_release);
  }
  bell.rung.notify_all();
}

}  // namespace horo
