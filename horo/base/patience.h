// Deadlines of a process that may be paused, as in a container that is frozen. The engine thread looks at the clock
// while collectives are in flight; if it did not run for a while, no deadline of a collective counts until the whole
// time has passed again.
#pragma once

#include "horo/base/awake_clock.h"
#include "horo/base/time.h"

namespace horo {

// Whether the deadline of a wait has passed, and no pause of this process may be the reason. Any thread.
bool has_passed(TimePoint deadline);

// Of an engine. The functions: one thread.
class Patience {
 public:
  // limit: the whole time of a wait.
  Patience(Duration limit, Duration longest_turn);
  ~Patience();
  Patience(const Patience&) = delete;
  Patience& operator=(const Patience&) = delete;

  // A turn of the thread begins. True: there was a pause before it.
  bool look(TimePoint now);
  // Nothing is in flight, or the thread looks at the clock no more. A clock that is neither looked at nor at rest holds
  // up the deadlines of all engines.
  void rest();

 private:
  friend bool has_passed(TimePoint deadline);
  bool has_passed_at(TimePoint now) const;

  const Duration limit_;
  AwakeClock clock_;
};

}  // namespace horo
