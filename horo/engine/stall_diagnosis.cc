#include "horo/engine/stall_diagnosis.h"

#include <utility>

#include "horo/base/error.h"

namespace horo {

std::optional<std::uint64_t> StallDiagnosis::next(TimePoint until) {
  MutexLock lock(mutex_);
  has_listener_ = true;
  while (taken_ && !closed_ && Clock::now() < until) changed_.wait_until(mutex_, until);
  if (closed_) throw ShutDown("the session was shut down: there are no more questions");
  if (std::exchange(taken_, true)) return std::nullopt;
  return asked_;
}

bool StallDiagnosis::answer(std::uint64_t question, std::string text) {
  MutexLock lock(mutex_);
  if (question != asked_ || !std::exchange(open_, false)) return false;
  answers_.push_back({question, std::move(text)});
  return true;
}

bool StallDiagnosis::ask(std::uint64_t question) {
  MutexLock lock(mutex_);
  if (!has_listener_) return false;
  asked_ = question;
  taken_ = false;
  open_ = true;
  changed_.notify_all();
  return true;
}

std::vector<Diagnosed> StallDiagnosis::take() {
  MutexLock lock(mutex_);
  return std::exchange(answers_, {});
}

void StallDiagnosis::begin_epoch() {
  MutexLock lock(mutex_);
  taken_ = true;
  open_ = false;
  answers_.clear();
}

void StallDiagnosis::close() {
  MutexLock lock(mutex_);
  closed_ = true;
  changed_.notify_all();
}

}  // namespace horo
