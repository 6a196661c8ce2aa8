// AwakeMembership: the JobMembership of a loop that may be paused, as the one of a guard that decides itself. Time in
// which the loop did not run is no silence of a member.
#pragma once

#include <algorithm>
#include <optional>
#include <vector>

#include "elastic/membership.h"
#include "horo/base/awake_clock.h"

namespace horo {

class AwakeMembership {
 public:
  explicit AwakeMembership(const MembershipConfig& config)
      : membership_(config), awake_(AwakeClock::for_limit(config.silence_limit)) {}

  std::vector<MembershipAction> on(const MembershipEvent& event, TimePoint now) {
    if (awake_.look(now)) membership_.count_from(now);
    std::vector<MembershipAction> actions = membership_.on(event, now);
    const std::optional<TimePoint> next = membership_.next_deadline();
    const bool is_counting = next || membership_.has_silent();
    if (!is_counting) awake_.rest();
    next_ = is_counting ? std::optional(std::min(next.value_or(TimePoint::max()), awake_.due(now))) : std::nullopt;
    return actions;
  }
  // When TimePassed is due after the last event; nothing: not before another one. If it comes much later, the loop was
  // paused.
  std::optional<TimePoint> next_deadline() const { return next_; }
  const JobMembership& real() const { return membership_; }

 private:
  JobMembership membership_;
  AwakeClock awake_;
  std::optional<TimePoint> next_;
};

}  // namespace horo
