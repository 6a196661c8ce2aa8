// StallClock: what waits for other ranks, by the time at which it has waited too long.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <utility>
#include <variant>
#include <vector>

#include "controller/coordinator.h"
#include "horo/base/time.h"

namespace horo {

struct Entry;
using Waiting = std::variant<Entry*, PlanId>;

class StallClock {
 public:
  using Ticket = std::pair<TimePoint, std::uint64_t>;  // when it is due, and which of those

  Ticket add(TimePoint due, Waiting waiting) {
    const Ticket ticket{due, ++serial_};
    waiting_.emplace(ticket, waiting);
    return ticket;
  }
  void remove(const Ticket& ticket) { waiting_.erase(ticket); }
  std::optional<TimePoint> earliest() const {
    return waiting_.empty() ? std::nullopt : std::optional(waiting_.begin()->first.first);
  }
  // What is due the longest; it is still waiting until removed.
  std::optional<Waiting> due(TimePoint now) const {
    return waiting_.empty() || waiting_.begin()->first.first > now ? std::nullopt
                                                                   : std::optional(waiting_.begin()->second);
  }
  std::vector<Waiting> all() const {
    std::vector<Waiting> all;
    for (const auto& [ticket, waiting] : waiting_) all.push_back(waiting);
    return all;
  }

 private:
  std::map<Ticket, Waiting> waiting_;
  std::uint64_t serial_ = 0;
};

}  // namespace horo
