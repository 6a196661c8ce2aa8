#include "tools/horo/timeline/clock_offset.h"

#include <cmath>

namespace horo::tools {
namespace {

constexpr int kSearchSteps = 100;  // each leaves two thirds

// Where a concave function is greatest.
template <class Function>
double peak_of(const Function& function, double begin, double end) {
  for (int i = 0; i < kSearchSteps; ++i) {
    const double third = (end - begin) / 3, left = begin + third, right = end - third;
    (function(left) < function(right) ? begin : end) = function(left) < function(right) ? left : right;
  }
  return (begin + end) / 2;
}

}  // namespace

void ClockOffset::add(const CollectiveTimes& first, const CollectiveTimes& other) {
  const double least = other.last_ready - first.first_released, most = other.first_released - first.last_ready;
  if (std::isfinite(least) && std::isfinite(most)) bounds_.push_back({other.last_ready, least, most});
}

// Of the offsets at that time that fit all collectives with this drift. It is empty if its width is negative.
ClockOffset::Range ClockOffset::range(double drift, double at) const {
  Range found{-std::numeric_limits<double>::infinity(), std::numeric_limits<double>::infinity()};
  for (const Bounds& one : bounds_) {
    const double change = drift * (one.time - at);
    found.least = std::max(found.least, one.least - change);
    found.most = std::min(found.most, one.most - change);
  }
  return found;
}

// Of the offsets at that time, with any drift that fits all collectives.
ClockOffset::Range ClockOffset::range_of_lines(double at) const {
  const double widest = peak_of([&](double drift) { return range(drift, at).width(); }, -kMostDrift, kMostDrift);
  const auto last_that_fits = [&](double outside) {
    double inside = widest;
    for (int i = 0; i < kSearchSteps; ++i) {
      const double middle = (inside + outside) / 2;
      (range(middle, at).width() < 0 ? outside : inside) = middle;
    }
    return inside;
  };
  const double low = last_that_fits(-kMostDrift), high = last_that_fits(kMostDrift);
  const double least = peak_of([&](double drift) { return -range(drift, at).least; }, low, high);
  const double most = peak_of([&](double drift) { return range(drift, at).most; }, low, high);
  return {range(least, at).least, range(most, at).most};
}

std::optional<ClockOffset::Found> ClockOffset::found() const {
  if (bounds_.empty()) return std::nullopt;
  const auto [begin, end] = std::ranges::minmax_element(bounds_, {}, [](const Bounds& one) { return one.time; });
  const double at = begin->time;
  if (const Range fixed = range(0, at); fixed.width() >= 0)
    return Found{(fixed.least + fixed.most) / 2, at, 0, fixed.width() / 2};
  const double drift = peak_of([&](double one) { return range(one, at).width(); }, -kMostDrift, kMostDrift);
  const Range found = range(drift, at);
  if (found.width() < 0) return std::nullopt;
  Found line{(found.least + found.most) / 2, at, drift, 0};
  // Where the lines that fit differ most is at an end.
  for (const double time : {at, end->time}) {
    const Range lines = range_of_lines(time);
    line.bound = std::max({line.bound, lines.most - line.offset_at(time), line.offset_at(time) - lines.least});
  }
  return line;
}

}  // namespace horo::tools
