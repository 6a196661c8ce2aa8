// The offset between two clocks, from what happened in a known order: every rank is ready for a collective before any
// rank learns that it is released. Each collective bounds the offset from both sides; all of them together leave a
// narrow interval, whatever the ways of the messages were.
#pragma once

#include <algorithm>
#include <limits>
#include <optional>

namespace horo::tools {

// Of one collective, on one clock: of all ranks that have it. Microseconds.
struct CollectiveTimes {
  double last_ready = -std::numeric_limits<double>::infinity();
  double first_released = std::numeric_limits<double>::infinity();

  void add(double ready, double released) {
    last_ready = std::max(last_ready, ready);
    first_released = std::min(first_released, released);
  }
};

class ClockOffset {
 public:
  // A collective, by both clocks.
  void add(const CollectiveTimes& first, const CollectiveTimes& other) {
    least_ = std::max(least_, other.last_ready - first.first_released);
    most_ = std::min(most_, other.first_released - first.last_ready);
  }

  struct Found {
    double offset = 0;  // of the other clock, to the first one
    double bound = 0;   // the true one differs by at most this
  };
  // Nothing: there was no collective, or none offset fits all of them, as of clocks whose speeds differ.
  std::optional<Found> found() const {
    if (!(least_ <= most_) || most_ - least_ == std::numeric_limits<double>::infinity()) return std::nullopt;
    return Found{(least_ + most_) / 2, (most_ - least_) / 2};
  }

 private:
  double least_ = -std::numeric_limits<double>::infinity();
  double most_ = std::numeric_limits<double>::infinity();
};

}  // namespace horo::tools
