// StallClock: what waits for other ranks, by the time at which something has to be done about it: a warning, then the
// question where everybody is, then the end.
#pragma once

#include <algorithm>
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
using EntryOrPlan = std::variant<Entry*, PlanId>;

enum class Stage { kWarn, kDiagnose, kFail };

// How long something may wait still, and what is to be done next.
struct StallPatience {
  TimePoint limit;
  Stage next = Stage::kWarn;
};

// A place on the clock.
struct StallTimer {
  StallPatience patience;
  std::pair<TimePoint, std::uint64_t> ticket;  // when it is due, and which of those
};

class StallClock {
 public:
  explicit StallClock(const CoordinatorConfig& config)
      : limit_(config.stall_limit),
        warning_(config.stall_warning),
        // A quarter is left for the answers where the limit is short.
        ask_ahead_(std::min<Duration>(limit_ / 4, config.answer_timeout)) {}

  // Of what begins to wait now.
  StallPatience fresh(TimePoint now) const {
    const bool warns = warning_ > Duration::zero() && warning_ < limit_ - ask_ahead_;
    return {now + limit_, warns ? Stage::kWarn : Stage::kDiagnose};
  }
  // What is due within this time of one another belongs together.
  Duration together() const { return limit_ / 100; }
  Duration waited(const StallPatience& patience, TimePoint now) const { return now - (patience.limit - limit_); }

  StallTimer add(const StallPatience& patience, EntryOrPlan waiting) {
    return add_at(due_time(patience), patience, waiting);
  }
  StallTimer add_at(TimePoint due, const StallPatience& patience, EntryOrPlan waiting) {
    const StallTimer wait{patience, {due, ++serial_}};
    waiting_.emplace(wait.ticket, waiting);
    return wait;
  }
  void remove(const StallTimer& wait) { waiting_.erase(wait.ticket); }
  std::optional<TimePoint> earliest() const {
    return waiting_.empty() ? std::nullopt : std::optional(waiting_.begin()->first.first);
  }
  // What is due the longest; it is still waiting until removed.
  std::optional<EntryOrPlan> due(TimePoint now) const {
    return waiting_.empty() || waiting_.begin()->first.first > now ? std::nullopt
                                                                   : std::optional(waiting_.begin()->second);
  }
  std::vector<EntryOrPlan> all() const {
    std::vector<EntryOrPlan> all;
    for (const auto& [ticket, waiting] : waiting_) all.push_back(waiting);
    return all;
  }

 private:
  TimePoint due_time(const StallPatience& patience) const {
    if (patience.next == Stage::kWarn) return patience.limit - limit_ + warning_;
    return patience.next == Stage::kDiagnose ? patience.limit - ask_ahead_ : patience.limit;
  }

  const Duration limit_;
  const Duration warning_;
  const Duration ask_ahead_;
  std::map<std::pair<TimePoint, std::uint64_t>, EntryOrPlan> waiting_;
  std::uint64_t serial_ = 0;
};

}  // namespace horo
