#include "horo/base/patience.h"

#include <algorithm>
#include <vector>

#include "horo/base/mutex.h"

namespace horo {
namespace {

// Of all engines of this process: their clocks are guarded, too.
struct All {
  Mutex mutex;
  std::vector<const Patience*> engines GUARDED_BY(mutex);
};

All& all() {
  static All* const one = new All;  // threads may still wait when static objects are destroyed
  return *one;
}

}  // namespace

Patience::Patience(Duration limit, Duration longest_turn) : limit_(limit), clock_(longest_turn) {
  MutexLock lock(all().mutex);
  all().engines.push_back(this);
}

Patience::~Patience() {
  MutexLock lock(all().mutex);
  std::erase(all().engines, this);
}

bool Patience::look(TimePoint now) {
  MutexLock lock(all().mutex);
  return clock_.look(now);
}

void Patience::rest() {
  MutexLock lock(all().mutex);
  clock_.rest();
}

// A waiter may run before the engine thread does.
bool Patience::has_passed_at(TimePoint now) const {
  const bool was_whole = clock_.since() == TimePoint::min() || now >= clock_.since() + limit_;
  return was_whole && (clock_.is_resting() || clock_.is_awake(now));
}

bool has_passed(TimePoint deadline) {
  const TimePoint now = Clock::now();
  if (now < deadline) return false;
  All& every = all();
  MutexLock lock(every.mutex);
  return std::all_of(every.engines.begin(), every.engines.end(),
                     [now](const Patience* one) { return one->has_passed_at(now); });
}

}  // namespace horo
