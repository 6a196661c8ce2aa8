#include "horo/tensors/callers.h"

#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <new>
#include <utility>

#include "horo/base/forked.h"

namespace horo {
namespace {

// The longest slice, and the longest pause between two slices of one wait.
constexpr std::chrono::seconds kSlice{1};
// A wait that ends later than this has no end.
constexpr std::chrono::hours kNoEnd{24};

// A forked child inherits the number of the parent's thread, so it belongs to one generation.
struct ThreadNumber {
  pid_t number = 0;
  std::uint32_t generation = 0;
};

pid_t this_thread() noexcept {
  static constinit thread_local ThreadNumber mine;
  const std::uint32_t generation = fork_generation();
  if (mine.number == 0 || mine.generation != generation) {
    mine = {static_cast<pid_t>(::syscall(SYS_gettid)), generation};
  }
  return mine.number;
}

bool has_ended(pid_t thread) noexcept {
  return ::syscall(SYS_tgkill, ::getpid(), thread, 0) != 0;
}

}  // namespace

Callers::Caller* Callers::this_caller() noexcept {
  try {
    return &callers_[this_thread()];
  } catch (const std::bad_alloc&) {
    is_complete_ = false;
    return nullptr;
  }
}

void Callers::submitted(TimePoint now) noexcept {
  MutexLock lock(mutex_);
  last_submit_ = now;
  Caller* caller = this_caller();
  if (caller == nullptr) return;
  caller->has_submitted = true;
  caller->keys.clear();
}

void Callers::begin_wait(std::vector<Key> keys, TimePoint until, TimePoint now) noexcept {
  MutexLock lock(mutex_);
  Caller* found = this_caller();
  if (found == nullptr) return;
  Caller& caller = *found;
  const bool is_slice = until - now <= kSlice;
  const bool continues = is_slice && caller.is_slice && now - caller.ended <= kSlice && caller.keys == keys;
  if (!continues) caller.since = now;
  caller.is_slice = is_slice;
  caller.waits = is_slice || until - now >= kNoEnd;
  caller.keys = std::move(keys);
}

void Callers::end_wait(bool finished, TimePoint now) noexcept {
  MutexLock lock(mutex_);
  const auto found = callers_.find(this_thread());
  if (found == callers_.end()) return;
  Caller& caller = found->second;
  caller.waits = false;
  caller.ended = now;
  if (finished) caller.keys.clear();
}

CallerWaits Callers::waits(TimePoint now) {
  MutexLock lock(mutex_);
  if (!is_complete_) return {};
  std::erase_if(callers_, [](const auto& one) { return has_ended(one.first); });
  TimePoint since = last_submit_;
  CallerWaits all;
  for (const auto& [thread, caller] : callers_) {
    const bool between_slices = caller.is_slice && !caller.keys.empty() && now - caller.ended <= kSlice;
    if (caller.waits || between_slices) {
      since = std::max(since, caller.since);
      all.threads.push_back(caller.keys);
    } else if (caller.has_submitted) {
      return {};
    }
  }
  if (all.threads.empty()) return {};
  all.unchanged = now - since;
  return all;
}

}  // namespace horo
