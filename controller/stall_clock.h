// StallClock: the timers of tensors and plans that some ranks have reported and others have not. A timer has three
// stages: warning, request for diagnosis, failure.
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

// Until when a tensor or plan may wait, and its next stage.
struct StallPatience {
  TimePoint limit;
  Stage next = Stage::kWarn;
};

struct StallTimer {
  StallPatience patience;
  std::pair<TimePoint, std::uint64_t> ticket;  // when it is due, and a number that makes it unique
};

class StallClock {
 public:
  explicit StallClock(const CoordinatorConfig& config)
      : limit_(config.stall_limit),
        warning_(config.stall_warning),
        // A short limit leaves a quarter of itself for the answers.
        diagnose_ahead_(std::min<Duration>(limit_ / 4, config.answer_timeout)) {}

  // The patience of a tensor or plan that begins to wait now.
  StallPatience fresh(TimePoint now) const {
    const bool warns = warning_ > Duration::zero() && warning_ < limit_ - diagnose_ahead_;
    return {now + limit_, warns ? Stage::kWarn : Stage::kDiagnose};
  }
  // Failures that are due within this time of one another are one failure.
  Duration together() const { return limit_ / 100; }
  Duration waited(const StallPatience& patience, TimePoint now) const { return now - (patience.limit - limit_); }

  // Starts a timer that is due at the time of patience.next.
  StallTimer add(const StallPatience& patience, EntryOrPlan what) { return add_at(due_time(patience), patience, what); }
  StallTimer add_at(TimePoint due, const StallPatience& patience, EntryOrPlan what) {
    const StallTimer timer{patience, {due, ++serial_}};
    timers_.emplace(timer.ticket, what);
    return timer;
  }
  void remove(const StallTimer& timer) { timers_.erase(timer.ticket); }
  std::optional<TimePoint> earliest() const {
    return timers_.empty() ? std::nullopt : std::optional(timers_.begin()->first.first);
  }
  // The one that has been due for the longest time; its timer runs until remove().
  std::optional<EntryOrPlan> due(TimePoint now) const {
    return timers_.empty() || timers_.begin()->first.first > now ? std::nullopt
                                                                 : std::optional(timers_.begin()->second);
  }
  std::vector<EntryOrPlan> all() const {
    std::vector<EntryOrPlan> all;
    for (const auto& [ticket, what] : timers_) all.push_back(what);
    return all;
  }

 private:
  TimePoint due_time(const StallPatience& patience) const {
    if (patience.next == Stage::kWarn) return patience.limit - limit_ + warning_;
    return patience.next == Stage::kDiagnose ? patience.limit - diagnose_ahead_ : patience.limit;
  }

  const Duration limit_;
  const Duration warning_;
  const Duration diagnose_ahead_;
  std::map<std::pair<TimePoint, std::uint64_t>, EntryOrPlan> timers_;
  std::uint64_t serial_ = 0;
};

}  // namespace horo
