// The short floats by their definition, in float64: the reference for kernels. Slow, and independent of
// ring/reduce/half.h and ring/reduce/float8.h.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>

#include "horo/base/types.h"

namespace horo {

struct FloatFormat {
  DType dtype;
  int exponent_bits;
  int mantissa_bits;
  bool has_infinity;  // else its greatest exponent also has numbers, and all ones are a NaN

  int bias() const { return (1 << (exponent_bits - 1)) - 1; }
  std::uint32_t codes() const { return 1u << (1 + exponent_bits + mantissa_bits); }

  double largest() const {
    const int exponent = (1 << exponent_bits) - (has_infinity ? 2 : 1);
    const int mantissa = (2 << mantissa_bits) - (has_infinity ? 1 : 2);
    return std::ldexp(mantissa, exponent - bias() - mantissa_bits);
  }
};

inline constexpr FloatFormat kFloatFormats[] = {{DType::kFloat16, 5, 10, true},
                                                {DType::kBFloat16, 8, 7, true},
                                                {DType::kFloat8E4m3, 4, 3, false},
                                                {DType::kFloat8E5m2, 5, 2, true}};

// The value of the bits.
inline double meaning(const FloatFormat& format, std::uint32_t bits) {
  const bool is_negative = (bits & format.codes() / 2) != 0;
  const int greatest = (1 << format.exponent_bits) - 1;
  const int ones = (1 << format.mantissa_bits) - 1;
  const int exponent = static_cast<int>(bits >> format.mantissa_bits) & greatest;
  const int mantissa = static_cast<int>(bits) & ones;
  double value = std::ldexp(mantissa + (exponent > 0 ? ones + 1 : 0),
                            (exponent > 0 ? exponent : 1) - format.bias() - format.mantissa_bits);
  const bool is_special = exponent == greatest && (format.has_infinity || mantissa == ones);
  if (is_special) {
    const bool is_infinity = format.has_infinity && mantissa == 0;
    value = is_infinity ? std::numeric_limits<double>::infinity() : std::numeric_limits<double>::quiet_NaN();
  }
  return is_negative ? -value : value;
}

// The nearest number of the format, ties to even. Larger numbers become infinity or, in a format without it, the
// largest number.
inline double nearest(const FloatFormat& format, double value) {
  if (value != value || value == 0) return value;
  const double most = format.has_infinity ? std::numeric_limits<double>::infinity() : format.largest();
  if (std::isinf(value)) return std::copysign(most, value);
  const int exponent = std::max(std::ilogb(value), 1 - format.bias());
  const double unit = std::ldexp(1.0, exponent - format.mantissa_bits);
  const double rounded = std::nearbyint(value / unit) * unit;
  return std::fabs(rounded) > format.largest() ? std::copysign(most, value) : rounded;
}

}  // namespace horo
