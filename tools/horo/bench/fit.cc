#include "tools/horo/bench/fit.h"

#include "horo/base/check.h"

namespace horo::tools {

// Least squares of (alpha + beta * s - t) / t: weights 1 / t^2 in the normal equations.
Fit fit_of(const std::vector<TimeOfSize>& times) {
  double w = 0, ws = 0, wss = 0, wt = 0, wst = 0;
  for (const TimeOfSize& one : times) {
    const auto s = static_cast<double>(one.bytes);
    const double weight = 1 / (one.seconds * one.seconds);
    w += weight;
    ws += weight * s;
    wss += weight * s * s;
    wt += weight * one.seconds;
    wst += weight * s * one.seconds;
  }
  const double determinant = w * wss - ws * ws;
  HORO_CHECK(determinant > 0);
  return {.alpha_s = (wss * wt - ws * wst) / determinant, .beta_s_per_byte = (w * wst - ws * wt) / determinant};
}

}  // namespace horo::tools
