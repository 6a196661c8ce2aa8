#include "horo/tensors/work.h"

#include <pthread.h>

#include <algorithm>
#include <array>
#include <bitset>
#include <cstddef>
#include <new>
#include <stdexcept>
#include <tuple>

#include "horo/base/check.h"
#include "horo/base/mutex.h"
#include "horo/base/say.h"
#include "horo/tensors/item.h"
#include "ring/cuda/cuda_device.h"
#include "ring/cuda/device_loans.h"

namespace horo {
namespace {

// A condition variable that several Works share. A thread that is woken for another Work continues to wait.
struct Bell {
  Mutex mutex;
  CondVar rung;
};
using Bells = std::array<Bell, 64>;

constexpr std::chrono::microseconds kFirstLook{20}, kLongestLook{1'000};  // pauses between looks at a device

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
  const State state = state_.load(std::memory_order_acquire);
  if (state != State::kIssued) return state == State::kEnded;
  try {
    if (!event_->is_complete()) return false;
  } catch (...) {
    fail(current_failure());
    return state_.load(std::memory_order_acquire) == State::kEnded;
  }
  State issued = State::kIssued;
  return state_.compare_exchange_strong(issued, State::kEnded) || issued == State::kEnded;
}

bool Work::wait_until_issued(TimePoint until) const {
  if (is_issued()) return true;
  Bell& bell = bell_of(key_);
  MutexLock lock(bell.mutex);
  while (!is_issued() && Clock::now() < until) bell.rung.wait_until(bell.mutex, until);
  return is_issued();
}

bool Work::wait_until(TimePoint until) const {
  if (!wait_until_issued(until)) return false;
  Duration pause = kFirstLook;
  while (!finished()) {
    const TimePoint now = Clock::now();
    if (now >= until) return false;
    Bell& bell = bell_of(key_);
    MutexLock lock(bell.mutex);
    if (state_.load(std::memory_order_acquire) == State::kEnded) return true;
    bell.rung.wait_until(bell.mutex, std::min(until, now + pause));
    pause = std::min<Duration>(2 * pause, kLongestLook);
  }
  return true;
}

const Outcome& Work::outcome() const {
  HORO_CHECK(is_issued());
  const bool has_ended = state_.load(std::memory_order_acquire) == State::kEnded;
  if (has_ended && failure_) failure_->raise();
  return outcome_;
}

void Work::copy_result(void* out, int device, CudaStream stream) const {
  DeviceLoan* const loan = is_issued() ? outcome().on_device.get() : nullptr;
  if (loan == nullptr || loan->device().number() != device) {
    throw std::invalid_argument(say("the work has no result on cuda:", device));
  }
  loan->copy_to(out, outcome_.bytes, stream);
}

void Work::finish(Outcome outcome) {
  HORO_CHECK(!is_issued());
  outcome_ = std::move(outcome);
  become(State::kEnded);
}

void Work::issue(Outcome outcome, std::shared_ptr<const DeviceEvent> event) {
  HORO_CHECK(!is_issued());
  outcome_ = std::move(outcome);
  event_ = std::move(event);
  if (outcome_.on_device) outcome_.on_device->written_by(event_);
  become(State::kIssued);
}

void Work::finish_all(std::span<const Item> items) noexcept {
  set_all(items, State::kEnded);
}

void Work::issue_all(std::span<const Item> items, const std::shared_ptr<const DeviceEvent>& event) noexcept {
  for (const Item& item : items) item.work->event_ = event;
  set_all(items, State::kIssued);
}

// A waiting thread checks its Work while it holds the mutex of the bell. So it either sees the state, or is woken by
// the notification, which follows a lock of the mutex.
void Work::set_all(std::span<const Item> items, State state) noexcept {
  std::bitset<std::tuple_size_v<Bells>> to_ring;
  for (const Item& item : items) {
    HORO_CHECK(!item.work->is_issued());
    to_ring.set(item.work->key_ % to_ring.size());
    item.work->state_.store(state, std::memory_order_release);
  }
  for (Key key = 0; key < to_ring.size(); ++key) {
    if (!to_ring.test(key)) continue;
    Bell& bell = bell_of(key);
    { MutexLock lock(bell.mutex); }
    bell.rung.notify_all();
  }
}

void Work::fail(FailurePtr failure) const noexcept {
  if (is_issued()) {
    State issued = State::kIssued;
    if (!state_.compare_exchange_strong(issued, State::kFailing)) return;
  }
  failure_ = std::move(failure);
  become(State::kEnded);
}

bool Work::begin_failure(FailurePtr failure) const noexcept {
  HORO_CHECK(event_ != nullptr);
  State issued = State::kIssued;
  if (!is_failing_ && (finished() || !state_.compare_exchange_strong(issued, State::kFailing))) return false;
  failure_ = std::move(failure);
  return is_failing_ = true;
}

// The mutex is free at the notification, so that woken threads do not block on it. They may free this Work before it.
void Work::become(State state) const noexcept {
  Bell& bell = bell_of(key_);
  {
    MutexLock lock(bell.mutex);
    state_.store(state, std::memory_order_release);
  }
  bell.rung.notify_all();
}

}  // namespace horo
