// Callers: the threads that have submitted tensors to a session, and what they wait for. If all of them wait, this rank
// submits nothing until one of the waits ends: the leader uses that in its search for deadlocks.
//
// A thread that has never submitted is not known. A wait counts if it has no end, or if it is one of several short
// waits for the same works, as of a caller that handles signals in between. A longer wait with an end does not count,
// because the caller continues after it.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <map>
#include <vector>

#include "controller/coordinator.h"
#include "horo/base/mutex.h"
#include "horo/base/time.h"

namespace horo {

// Any thread may call any function. None blocks.
class Callers {
 public:
  // This thread has submitted tensors.
  void submitted(TimePoint now) noexcept;
  // This thread begins to wait for these keys, until `until`.
  void begin_wait(std::vector<Key> keys, TimePoint until, TimePoint now) noexcept;
  // The wait of this thread has ended; finished: what it waited for has ended.
  void end_wait(bool finished, TimePoint now) noexcept;

  // The waits, if every thread waits that has submitted and has not ended.
  CallerWaits waits(TimePoint now);

 private:
  struct Caller {
    bool has_submitted = false;
    bool waits = false;
    bool is_slice = false;  // its wait is a short one
    TimePoint since;        // the begin of its wait, of the first slice
    TimePoint ended;        // the end of its last slice
    std::vector<Key> keys;  // of the last wait; empty: what it waited for has ended
  };

  Caller* this_caller() noexcept REQUIRES(mutex_);

  Mutex mutex_;
  std::map<pid_t, Caller> callers_ GUARDED_BY(mutex_);  // by thread
  bool is_complete_ GUARDED_BY(mutex_) = true;          // false: there was no memory for another thread
  TimePoint last_submit_ GUARDED_BY(mutex_) = TimePoint::min();
};

}  // namespace horo
