// The element types and operations of the kernels. Loads and stores use memcpy, so any alignment is legal. Everything
// has internal linkage: every translation unit compiles it for its own instruction set, and the linker must not replace
// one copy by another.
#pragma once

#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <type_traits>

#include "ring/reduce/float8.h"
#include "ring/reduce/half.h"

namespace horo {
namespace {

// Truncates towards zero and saturates; a NaN becomes 0. The value of a 64-bit integer is a double here, so above 2^53
// it is the nearest double.
template <class Int>
constexpr Int saturate(double value) {
  // The maximum of a 64-bit type is not a double, but max + 1 is.
  constexpr Int kHalfOfMax = std::numeric_limits<Int>::max() / 2;
  constexpr double kEnd = 2.0 * (static_cast<double>(kHalfOfMax) + 1.0);
  constexpr double kLow = static_cast<double>(std::numeric_limits<Int>::min());
  if (value >= kEnd) return std::numeric_limits<Int>::max();
  if (value <= kLow) return std::numeric_limits<Int>::min();
  return value == value ? static_cast<Int>(value) : Int{0};
}

// An element type: buffers hold Stored, and sums are computed in Accumulator.
template <class Int>
struct IntElement {
  using Stored = Int;
  using Accumulator = Int;
  static constexpr Int load(Int stored) { return stored; }
  static constexpr Int store(Int value) { return value; }
  static constexpr Int scaled(Int value, double factor) { return saturate<Int>(factor * static_cast<double>(value)); }
  static constexpr Int finished(Int value, double divisor, double postscale) {
    return saturate<Int>(postscale * (static_cast<double>(value) / divisor));
  }
};

// Bools have no factors.
struct BoolElement {
  using Stored = std::uint8_t;
  using Accumulator = bool;
  static constexpr bool load(std::uint8_t stored) { return stored != 0; }
  static constexpr std::uint8_t store(bool value) { return value ? 1 : 0; }
  static constexpr bool scaled(bool value, double /*factor*/) { return value; }
  static constexpr bool finished(bool value, double /*divisor*/, double /*postscale*/) { return value; }
};

template <class Float>
struct ScaledFloat {
  using Accumulator = Float;
  static constexpr Float scaled(Float value, double factor) { return static_cast<Float>(factor) * value; }
  static constexpr Float finished(Float value, double divisor, double postscale) {
    return static_cast<Float>(postscale) * (value / static_cast<Float>(divisor));
  }
};

template <class Float>
struct FloatElement : ScaledFloat<Float> {
  using Stored = Float;
  static constexpr Float load(Float stored) { return stored; }
  static constexpr Float store(Float value) { return value == value ? value : std::numeric_limits<Float>::quiet_NaN(); }
};

// 16- and 8-bit floats are summed in float32.
struct Float16Element : ScaledFloat<float> {
  using Stored = std::uint16_t;
  static constexpr float load(std::uint16_t stored) { return float16_to_float(stored); }
  static constexpr std::uint16_t store(float value) { return float_to_float16(value); }
};

struct BFloat16Element : ScaledFloat<float> {
  using Stored = std::uint16_t;
  static constexpr float load(std::uint16_t stored) { return bfloat16_to_float(stored); }
  static constexpr std::uint16_t store(float value) { return float_to_bfloat16(value); }
};

struct Float8E4m3Element : ScaledFloat<float> {
  using Stored = std::uint8_t;
  static constexpr float load(std::uint8_t stored) { return float8_e4m3_to_float(stored); }
  static constexpr std::uint8_t store(float value) { return float_to_float8_e4m3(value); }
};

struct Float8E5m2Element : ScaledFloat<float> {
  using Stored = std::uint8_t;
  static constexpr float load(std::uint8_t stored) { return float8_e5m2_to_float(stored); }
  static constexpr std::uint8_t store(float value) { return float_to_float8_e5m2(value); }
};

// Two floats. A NaN affects one of them; a factor scales both.
template <class Float>
struct Complex {
  Float real;
  Float imaginary;
};

template <class Float>
struct ComplexElement {
  using Stored = Complex<Float>;
  using Accumulator = Complex<Float>;
  using Half = FloatElement<Float>;
  static constexpr Stored load(Stored stored) { return stored; }
  static constexpr Stored store(Stored value) { return {Half::store(value.real), Half::store(value.imaginary)}; }
  static constexpr Stored scaled(Stored value, double factor) {
    return {Half::scaled(value.real, factor), Half::scaled(value.imaginary, factor)};
  }
  static constexpr Stored finished(Stored value, double divisor, double postscale) {
    return {Half::finished(value.real, divisor, postscale), Half::finished(value.imaginary, divisor, postscale)};
  }
};

template <class T>
inline constexpr bool kIsComplex = false;
template <class Float>
inline constexpr bool kIsComplex<Complex<Float>> = true;

// Integers wrap: they are added and multiplied in an unsigned type of at least 32 bits.
template <class Int>
using Wrapping = std::make_unsigned_t<std::common_type_t<Int, std::int32_t>>;

struct Sum {
  template <class T>
  static constexpr T apply(T a, T b) {
    if constexpr (std::is_same_v<T, bool>) {
      return a || b;
    } else if constexpr (std::is_integral_v<T>) {
      return static_cast<T>(static_cast<Wrapping<T>>(a) + static_cast<Wrapping<T>>(b));
    } else if constexpr (kIsComplex<T>) {
      return {a.real + b.real, a.imaginary + b.imaginary};
    } else {
      return a + b;
    }
  }
};

// Complex numbers are multiplied by the textbook formula: an infinity may become a NaN.
struct Product {
  template <class T>
  static constexpr T apply(T a, T b) {
    if constexpr (std::is_same_v<T, bool>) {
      return a && b;
    } else if constexpr (std::is_integral_v<T>) {
      return static_cast<T>(static_cast<Wrapping<T>>(a) * static_cast<Wrapping<T>>(b));
    } else if constexpr (kIsComplex<T>) {
      return {a.real * b.real - a.imaginary * b.imaginary, a.real * b.imaginary + a.imaginary * b.real};
    } else {
      return a * b;
    }
  }
};

// Minimum and maximum of floats. Equal values differ at most in the sign of zero: the minimum takes the OR of their
// bits, the maximum the AND. An addition propagates NaNs.
template <class Float>
using BitsOf = std::conditional_t<sizeof(Float) == 4, std::uint32_t, std::uint64_t>;

struct Min {
  template <class T>
  static constexpr T apply(T a, T b) {
    if constexpr (std::is_same_v<T, bool>) {
      return a && b;
    } else if constexpr (std::is_integral_v<T>) {
      return a < b ? a : b;
    } else {
      const T same = std::bit_cast<T>(std::bit_cast<BitsOf<T>>(a) | std::bit_cast<BitsOf<T>>(b));
      const T less = a < b ? a : b;
      const T value = a == b ? same : less;
      return a != a || b != b ? a + b : value;
    }
  }
};

struct Max {
  template <class T>
  static constexpr T apply(T a, T b) {
    if constexpr (std::is_same_v<T, bool>) {
      return a || b;
    } else if constexpr (std::is_integral_v<T>) {
      return a > b ? a : b;
    } else {
      const T same = std::bit_cast<T>(std::bit_cast<BitsOf<T>>(a) & std::bit_cast<BitsOf<T>>(b));
      const T more = a > b ? a : b;
      const T value = a == b ? same : more;
      return a != a || b != b ? a + b : value;
    }
  }
};

// Bitwise operations on integers and bools.
struct BitAnd {
  template <class T>
  static constexpr T apply(T a, T b) {
    return static_cast<T>(a & b);
  }
};

struct BitOr {
  template <class T>
  static constexpr T apply(T a, T b) {
    return static_cast<T>(a | b);
  }
};

struct BitXor {
  template <class T>
  static constexpr T apply(T a, T b) {
    return static_cast<T>(a ^ b);
  }
};

// Whether the operation is defined on the accumulator type. supports() of horo/base/types.h has the same rules.
template <class Op, class T>
inline constexpr bool kApplies = true;
template <class Float>
inline constexpr bool kApplies<Min, Complex<Float>> = false;
template <class Float>
inline constexpr bool kApplies<Max, Complex<Float>> = false;
template <class T>
inline constexpr bool kApplies<BitAnd, T> = std::is_integral_v<T>;
template <class T>
inline constexpr bool kApplies<BitOr, T> = std::is_integral_v<T>;
template <class T>
inline constexpr bool kApplies<BitXor, T> = std::is_integral_v<T>;

}  // namespace
}  // namespace horo
