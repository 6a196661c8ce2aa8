// Exits: how the members of a host end, as the decision is told. A member that leaves with its process (messages.h) is
// told when the exit code is known: as one that has left, or that has failed. If the process takes long to end, it is
// told as one that has left, and as one that has failed later. A pure state machine.
#pragma once

#include <chrono>
#include <map>
#include <optional>
#include <set>
#include <vector>

#include "elastic/host_messages.h"
#include "horo/base/time.h"

namespace horo {

class Exits {
 public:
  static constexpr std::chrono::milliseconds kPatience{1'000};  // for the end of a process that has left

  // Takes what the guard has seen; returns what the decision takes, in this order. Of a member's Leaves the first one
  // counts.
  std::vector<HostEvent> on(const HostEvent& event, TimePoint now);
  std::vector<HostEvent> pass_time(TimePoint now);
  // When pass_time() is due; nothing: not before another event.
  std::optional<TimePoint> next_deadline() const;

 private:
  struct Exit {
    Leave message;                 // for the decision
    std::optional<TimePoint> due;  // nothing: it is told
  };

  std::map<MemberId, Exit> exits_;  // of processes that have not ended
  std::set<MemberId> left_;         // members that have sent a Leave
};

}  // namespace horo
