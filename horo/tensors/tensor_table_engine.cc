// The engine's half of the tensor table.

#include <algorithm>
#include <map>
#include <utility>

#include "horo/base/check.h"
#include "horo/tensors/tensor_table.h"

namespace horo {

void TensorTable::add_set(std::uint32_t set, const std::string& name, const std::vector<int>& ranks) {
  MutexLock lock(mutex_);
  sets_.add(set, name, ranks);
}

void TensorTable::remove_set(std::uint32_t set) {
  MutexLock lock(mutex_);
  sets_.remove(set);
  rounds_.forget_set(set);
}

void TensorTable::reset_unnamed(std::uint32_t set) {
  MutexLock lock(mutex_);
  tensors_.reset_unnamed(set);
  rounds_.forget_set(set);
}

void TensorTable::add_plan(PlanId plan, const std::vector<Key>& keys) {
  MutexLock lock(mutex_);
  plans_.add(plan, keys);
}

SubmissionBatch TensorTable::remove_plan(PlanId plan) {
  MutexLock lock(mutex_);
  SubmissionBatch batch;
  plans_.remove(plan, batch);
  return batch;
}

SubmissionBatch TensorTable::take() {
  MutexLock lock(mutex_);
  SubmissionBatch batch = queue_.take();
  tensors_.take_changes(batch);
  return batch;
}

void TensorTable::wait_for_quiet(TimePoint until, Duration quiet) {
  MutexLock lock(mutex_);
  for (std::size_t seen = 0; queue_.size() > seen && Clock::now() < until;) {
    seen = queue_.size();
    const TimePoint pause = std::min(until, Clock::now() + quiet);
    while (!queue_.flush_requested() && Clock::now() < pause) flush_requested_.wait_until(mutex_, pause);
    if (queue_.flush_requested()) return;
  }
}

bool TensorTable::begin_sleep() {
  MutexLock lock(mutex_);
  return queue_.begin_sleep();
}

void TensorTable::retire(std::span<const Item> items) noexcept {
  MutexLock lock(mutex_);
  for (const Item& item : items) retire_one(item);
}

void TensorTable::retire_one(const Item& item) noexcept {
  TensorRecord& record = tensors_.at(item.submission.key);
  HORO_CHECK(record.is_in_flight());
  --in_flight_;
  if (is_request(record.spec.kind)) sets_.end_request(record.spec);
  tensors_.retire(record);
}

// Everything that may throw precedes the end of the rebuild.
bool TensorTable::begin_epoch(const Item& ended) {
  MutexLock lock(mutex_);
  if (closed_) return false;
  queue_.clear();
  plans_.clear();
  tensors_.begin_epoch();
  std::map<std::uint64_t, Item> in_flight;
  for (TensorRecord& record : tensors_.records()) {
    if (!record.is_in_flight() || record.item.work == ended.work) continue;
    record.reported = true;
    in_flight.emplace(record.serial, record.item);
  }
  rounds_.report(in_flight, queue_.batch());
  tensors_.skip(ended.submission.key);
  retire_one(ended);
  return true;
}

bool TensorTable::has_in_flight() const {
  MutexLock lock(mutex_);
  return in_flight_ > 0;
}

bool TensorTable::close(FailurePtr failure) noexcept {
  MutexLock lock(mutex_);
  if (!closed_) closed_ = std::move(failure);
  queue_.clear();
  return in_flight_ > 0;
}

// Allocates nothing: the epoch may have ended because memory ran out.
void TensorTable::fail_all() noexcept {
  MutexLock lock(mutex_);
  HORO_CHECK(closed_ != nullptr);
  for (TensorRecord& record : tensors_.records()) {
    if (!record.is_in_flight()) continue;
    record.item.work->fail(closed_);
    record.item.work = nullptr;
  }
  in_flight_ = 0;
}

}  // namespace horo
