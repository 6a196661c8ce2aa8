#include "tools/horo/timeline/clock_offset.h"

#include <cmath>

namespace horo::tools {
namespace {

constexpr int kSearchSteps = 70;  // each leaves two thirds: 1e-15 of a drift, and of a day 0.1 us

// Where a concave function is greatest.
template <class Function>
double peak_of(const Function& function, double begin, double end) {
  for (int i = 0; i < kSearchSteps; ++i) {
    const double third = (end - begin) / 3, left = begin + third, right = end - third;
    if (function(left) < function(right)) {
      begin = left;
    } else {
      end = right;
    }
  }
  return (begin + end) / 2;
}

}  // namespace

void ClockOffset::add(const CollectiveTimes& first, const CollectiveTimes& other) {
  const double least = other.last_ready - first.first_released, most = other.first_released - first.last_ready;
  if (std::isfinite(least) && std::isfinite(most))
    bounds_.push_back({other.last_ready, least, other.first_released, most});
}

// Of the offsets at that time that fit all collectives with this drift. It is empty if its width is negative, which
// does not depend on the time.
ClockOffset::Range ClockOffset::range(double drift, double at) const {
  Range found{-std::numeric_limits<double>::infinity(), std::numeric_limits<double>::infinity()};
  for (const Bounds& one : bounds_) {
    found.least = std::max(found.least, one.least - drift * (one.least_time - at));
    found.most = std::min(found.most, one.most - drift * (one.most_time - at));
  }
  return found;
}

// The greatest distance of a line that fits all collectives from this one, which does, too. It is at an end.
double ClockOffset::bound_of(const Found& line, double end) const {
  const auto last_that_fits = [&](double outside) {
    double inside = line.drift;
    for (int i = 0; i < kSearchSteps; ++i) {
      const double middle = (inside + outside) / 2;
      (range(middle, line.at).width() < 0 ? outside : inside) = middle;
    }
    return inside;
  };
  const double low = last_that_fits(-kMostDrift), high = last_that_fits(kMostDrift);
  double bound = 0;
  for (const double at : {line.at, end}) {
    const double least = peak_of([&](double drift) { return -range(drift, at).least; }, low, high);
    const double most = peak_of([&](double drift) { return range(drift, at).most; }, low, high);
    const double offset = line.offset_at(at);
    bound = std::max({bound, range(most, at).most - offset, offset - range(least, at).least});
  }
  return bound;
}

std::optional<ClockOffset::Found> ClockOffset::found() const {
  if (bounds_.empty()) return std::nullopt;
  const double at = std::ranges::min_element(bounds_, {}, &Bounds::least_time)->least_time;
  const double end = std::ranges::max_element(bounds_, {}, &Bounds::most_time)->most_time;
  double drift = 0;
  if (range(0, at).width() < 0)
    drift = peak_of([&](double one) { return range(one, at).width(); }, -kMostDrift, kMostDrift);
  const Range fits = range(drift, at);
  if (fits.width() < 0) return std::nullopt;
  Found line{(fits.least + fits.most) / 2, at, drift, 0};
  line.bound = bound_of(line, end);
  return line;
}

}  // namespace horo::tools
