// The offset between two clocks, from what happened in a known order: every rank is ready for a collective before any
// rank learns that it is released. Each collective bounds the offset from both sides; all of them together leave a
// narrow interval, whatever the ways of the messages were. Clocks whose speeds differ have an offset that is a line.
#pragma once

#include <algorithm>
#include <limits>
#include <optional>
#include <vector>

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
  void add(const CollectiveTimes& first, const CollectiveTimes& other);

  // Of the other clock, to the first one.
  struct Found {
    double offset = 0;  // when the other clock shows `at`
    double at = 0;
    double drift = 0;  // of the offset, for each microsecond; 0: one offset fits all collectives
    // The true offset differs by at most this at any time of the run, if it is a line of less than kMostDrift.
    double bound = 0;

    double offset_at(double time) const { return offset + drift * (time - at); }
  };
  // Nothing: there was no collective, or no line of less than kMostDrift fits all of them, as after a clock was set.
  std::optional<Found> found() const;

 private:
  static constexpr double kMostDrift = 1e-3;

  // Times are on the other clock, offsets those at these times.
  struct Bounds {
    double least_time, least, most_time, most;
  };
  struct Range {
    double least, most;
    double width() const { return most - least; }
  };

  Range range(double drift, double at) const;
  double bound_of(const Found& line, double end) const;

  std::vector<Bounds> bounds_;
};

}  // namespace horo::tools
