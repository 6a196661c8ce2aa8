// StallClock: the timers of tensors and plans that some ranks have reported and others have not. A timer has several
// stages: each is due a fixed time after the first report, or does not exist. After the last stage the timer stays, and
// is never due.
#pragma once

#include <algorithm>
#include <array>
#include <chrono>
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

// kCheck: search for a deadlock. kDiagnose, kFail: only with CoordinatorConfig::stall_limit.
enum class Stage : std::uint8_t { kWarn, kCheck, kDiagnose, kFail };
inline constexpr std::size_t kStages = 4;

// Since when a tensor or plan waits, and the stages that it has passed.
struct StallPatience {
  TimePoint since;
  std::array<bool, kStages> passed{};

  bool has_passed(Stage stage) const { return passed[static_cast<std::size_t>(stage)]; }
  StallPatience after(Stage stage) const {
    StallPatience patience = *this;
    patience.passed[static_cast<std::size_t>(stage)] = true;
    return patience;
  }
};

struct StallTimer {
  StallPatience patience;
  std::pair<TimePoint, std::uint64_t> ticket;  // when it is due, and a number that makes it unique
};

class StallClock {
 public:
  explicit StallClock(const CoordinatorConfig& config)
      : limit_(config.stall_limit),
        // A short limit leaves a quarter of itself for the answers.
        diagnose_ahead_(std::min<Duration>(limit_ / 4, config.answer_timeout)) {
    // Plans that ranks wait for in a cycle are dissolved at this stage, so it exists without warnings too.
    const Duration warning = config.stall_warning > Duration::zero() ? config.stall_warning : kWithoutWarnings;
    set(Stage::kWarn, warning);
    const Duration deadlock = config.deadlock_limit;
    const bool fails_first = limit_ != Duration::zero() && limit_ <= deadlock;
    if (deadlock > Duration::zero() && !fails_first) set(Stage::kCheck, deadlock);
    if (limit_ == Duration::zero()) return;
    if (warning >= limit_ - diagnose_ahead_) times_[0].reset();
    set(Stage::kDiagnose, limit_ - diagnose_ahead_);
    set(Stage::kFail, limit_);
  }

  // The next stage, and when it is due; nullopt: there is none.
  std::optional<std::pair<TimePoint, Stage>> next(const StallPatience& patience) const {
    std::optional<std::pair<TimePoint, Stage>> next;
    for (std::size_t stage = 0; stage < kStages; ++stage) {
      if (!times_[stage] || patience.passed[stage]) continue;
      const TimePoint due = patience.since + *times_[stage];
      if (!next || due < next->first) next = {due, static_cast<Stage>(stage)};
    }
    return next;
  }
  bool is_next(const StallPatience& patience, Stage stage) const {
    const auto found = next(patience);
    return found && found->second == stage;
  }
  // Failures that are due within this time of one another are one failure.
  Duration together() const { return limit_ / 100; }
  // Between the stages kDiagnose and kFail.
  Duration diagnose_ahead() const { return diagnose_ahead_; }

  // Starts a timer that is due at the time of its next stage.
  StallTimer add(const StallPatience& patience, EntryOrPlan what) {
    const auto stage = next(patience);
    return add_at(stage ? stage->first : TimePoint::max(), patience, what);
  }
  StallTimer add_at(TimePoint due, const StallPatience& patience, EntryOrPlan what) {
    const StallTimer timer{patience, {due, ++serial_}};
    timers_.emplace(timer.ticket, what);
    return timer;
  }
  void remove(const StallTimer& timer) { timers_.erase(timer.ticket); }
  std::optional<TimePoint> earliest() const {
    const bool none = timers_.empty() || timers_.begin()->first.first == TimePoint::max();
    return none ? std::nullopt : std::optional(timers_.begin()->first.first);
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
  static constexpr std::chrono::seconds kWithoutWarnings{10};

  void set(Stage stage, Duration time) { times_[static_cast<std::size_t>(stage)] = time; }

  const Duration limit_;
  const Duration diagnose_ahead_;
  std::array<std::optional<Duration>, kStages> times_;  // by stage, since the first report
  std::map<std::pair<TimePoint, std::uint64_t>, EntryOrPlan> timers_;
  std::uint64_t serial_ = 0;
};

}  // namespace horo
