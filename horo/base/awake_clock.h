// AwakeClock: notices that the loop that owns it did not run for a while, as in a paused container or on a machine that
// swaps. What others have sent meanwhile may lie unread in sockets, and the others may have been paused, too: so
// silence counts only from the end of such a pause.
#pragma once

#include <algorithm>
#include <chrono>
#include <optional>

#include "horo/base/time.h"

namespace horo {

class AwakeClock {
 public:
  // A turn of the loop that takes longer than this is a pause.
  explicit AwakeClock(Duration longest_turn) : longest_turn_(longest_turn) {}
  // For a loop that gives others up after a silence of `limit`: at most half of it can pass unseen.
  static AwakeClock for_limit(Duration limit) {
    using std::chrono::milliseconds;
    return AwakeClock(std::clamp<Duration>(limit / 2, milliseconds(250), milliseconds(2'000)));
  }

  // A turn of the loop begins. True: there was a pause before it.
  bool look(TimePoint now) {
    const bool was_paused = last_ && now - *last_ > longest_turn_;
    if (was_paused) since_ = now;
    last_ = last_ ? std::max(*last_, now) : now;
    return was_paused;
  }
  // The loop waits for nothing: until the next look() no turn is due.
  void rest() { last_.reset(); }
  bool is_resting() const { return !last_; }
  // The next look() is due, if the loop waits for something.
  TimePoint due(TimePoint now) const { return last_.value_or(now) + longest_turn_ / 2; }
  // Whether the present turn is none that follows a pause, as far as is known before its look().
  bool is_awake(TimePoint now) const { return last_ && now - *last_ <= longest_turn_; }
  // Silence counts from here at the earliest.
  TimePoint since() const { return since_; }

 private:
  Duration longest_turn_;
  std::optional<TimePoint> last_;
  TimePoint since_ = TimePoint::min();
};

}  // namespace horo
