// Parking: the wait of frozen members for others, without which too few are left, for at most --park-timeout.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "elastic/messages.h"
#include "horo/base/time.h"

namespace horo {

class Parking {
 public:
  explicit Parking(std::chrono::milliseconds timeout) : timeout_(timeout) {}

  bool is_on() const { return since_.has_value(); }
  // The members that are not here or do not answer. They are waited for from `now` on, if that has not begun: then
  // true.
  bool wait_for(std::vector<MemberId> missing, TimePoint now) {
    missing_ = std::move(missing);
    if (const auto unwaited = std::exchange(unwaited_since_, std::nullopt); unwaited && since_)
      *since_ += now - *unwaited;
    if (since_) return false;
    since_ = now;
    told_ = SIZE_MAX;
    return true;
  }
  // While it is on.
  TimePoint until() const { return *since_ + timeout_; }
  // Whether the members that wait are to be told their number, which is another one than they were told last.
  bool tells(std::size_t waiting) { return std::exchange(told_, waiting) != waiting; }
  std::size_t told() const { return told_; }
  // The time in which no member waits, since all are stopped, does not count.
  void pause(TimePoint now) {
    if (since_ && !unwaited_since_) unwaited_since_ = now;
  }
  // The caller did not run before.
  void count_from(TimePoint now) {
    if (since_) since_ = std::max(*since_, now);
    if (unwaited_since_) unwaited_since_ = std::max(*unwaited_since_, now);
  }
  std::vector<MemberId>& missing() { return missing_; }
  void end() {
    since_.reset();
    unwaited_since_.reset();
  }

 private:
  const std::chrono::milliseconds timeout_;
  std::optional<TimePoint> since_;
  std::vector<MemberId> missing_;
  std::size_t told_ = 0;
  std::optional<TimePoint> unwaited_since_;  // on: none of the others waits
};

}  // namespace horo
