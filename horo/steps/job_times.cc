#include "horo/steps/job_times.h"

#include <algorithm>
#include <new>

namespace horo {
namespace {

constexpr std::size_t kMostFrozen = 256;

template <class T>
void drop_first_half(std::vector<T>& list) {
  list.erase(list.begin(), list.begin() + static_cast<std::ptrdiff_t>(list.size() / 2));
}

}  // namespace

// What is not known yet: after the last phase that has ended, the lane transfers until `now`, or delivers after that.
JobTime JobTimes::until(const Running& running, TimePoint now) {
  JobTime job = running.job;
  constexpr auto kTransfer = static_cast<std::size_t>(Phase::kTransfer);
  TimePoint last = job.begun;
  for (std::size_t phase = 0; phase < kPhases; ++phase) {
    const bool is_the_present_one = phase >= running.marked && phase >= kTransfer;
    const TimePoint end = is_the_present_one ? now : job.ends[phase];
    last = job.ends[phase] = std::max(end, last);
  }
  return job;
}

void JobTimes::begin(const void* key, const JobTime& job) noexcept {
  if (!is_on_) return;
  MutexLock lock(mutex_);
  try {
    Running& running = running_[key];
    if (running.is_running) {
      running.job.is_aborted = true;
      store(until(running, job.begun));
    }
    running = {job, 0, true};
  } catch (const std::bad_alloc&) {
    has_forgotten_ = true;
  }
}

void JobTimes::mark(const void* key, Phase phase, TimePoint now) noexcept {
  if (!is_on_) return;
  MutexLock lock(mutex_);
  const auto found = running_.find(key);
  if (found == running_.end() || !found->second.is_running) return;
  found->second.job.ends[static_cast<std::size_t>(phase)] = now;
  found->second.marked = static_cast<std::size_t>(phase) + 1;
}

void JobTimes::end(const void* key, std::uint32_t epoch, TimePoint now) noexcept {
  if (!is_on_) return;
  MutexLock lock(mutex_);
  const auto found = running_.find(key);
  if (found == running_.end() || !found->second.is_running) return;
  Running& running = found->second;
  running.is_running = false;
  running.job.epoch = epoch;
  running.job.ends.back() = now;
  running.marked = kPhases;
  store(until(running, now));
}

void JobTimes::close(const void* key, TimePoint now) noexcept {
  if (!is_on_) return;
  MutexLock lock(mutex_);
  const auto found = running_.find(key);
  if (found == running_.end()) return;
  if (found->second.is_running) {
    found->second.job.is_aborted = true;
    store(until(found->second, now));
  }
  running_.erase(found);
}

void JobTimes::store(const JobTime& job) noexcept {
  try {
    if (ended_.size() >= kMost) {
      has_forgotten_ = true;
      drop_first_half(ended_);
      counts_.clear();
      for (const JobTime& one : ended_) ++counts_[one.lane];
    }
    std::size_t& count = counts_[job.lane];
    if (count >= kMostOfLane) {
      has_forgotten_ = true;
      std::size_t left = count / 2;
      std::erase_if(ended_, [&](const JobTime& one) { return one.lane == job.lane && left > 0 && left-- > 0; });
      count -= count / 2;
    }
    ended_.push_back(job);
    ++count;
  } catch (const std::bad_alloc&) {
    has_forgotten_ = true;
  }
}

void JobTimes::freeze(TimePoint now) noexcept {
  if (!is_on_) return;
  MutexLock lock(mutex_);
  if (is_frozen_) return;
  is_frozen_ = true;
  frozen_at_ = now;
  for (auto& [key, running] : running_) {
    if (!running.is_running) continue;
    running.is_running = false;
    running.job.is_aborted = true;
    store(until(running, now));
  }
}

void JobTimes::thaw(TimePoint now) noexcept {
  if (!is_on_) return;
  MutexLock lock(mutex_);
  if (!is_frozen_) return;
  is_frozen_ = false;
  try {
    if (frozen_.size() >= kMostFrozen) drop_first_half(frozen_);
    frozen_.push_back({frozen_at_, std::max(now, frozen_at_)});
  } catch (const std::bad_alloc&) {
    has_forgotten_ = true;
  }
}

void JobTimes::take(TimePoint now, Taken& taken) noexcept {
  taken.jobs.clear();
  taken.frozen.clear();
  if (!is_on_) return;
  move_to(now, taken);
  std::ranges::sort(taken.jobs, {}, &JobTime::begun);
}

void JobTimes::move_to(TimePoint now, Taken& taken) noexcept {
  MutexLock lock(mutex_);
  std::swap(taken.jobs, ended_);
  std::swap(taken.frozen, frozen_);
  counts_.clear();
  taken.has_forgotten = has_forgotten_;
  has_forgotten_ = false;
  try {
    for (const auto& [key, running] : running_) {
      if (running.is_running && running.job.begun < now) taken.jobs.push_back(until(running, now));
    }
    if (is_frozen_ && frozen_at_ < now) taken.frozen.push_back({frozen_at_, now});
  } catch (const std::bad_alloc&) {
    taken.has_forgotten = true;
  }
}

}  // namespace horo
