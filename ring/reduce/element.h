// What one element is and how two of them combine: the types and operations of reduce.cc. Loads and stores go through
// memcpy, so any alignment is legal. All of it has internal linkage: every translation unit compiles it for its own
// instruction set, and the linker must not take one copy for another.
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

// Truncates towards zero and saturates; a NaN becomes 0. A 64-bit value came here as a double, so above 2^53 it is a
// neighbour: the nearest that has a place there.
template <class Int>
Int saturate(double value) {
  // The upper limit of a 64-bit type is not a double: max + 1 is, so compare with that.
  constexpr double kEnd = 2.0 * (static_cast<double>(std::numeric_limits<Int>::max() / 2) + 1.0);
  constexpr double kLow = static_cast<double>(std::numeric_limits<Int>::min());
  if (value >= kEnd) return std::numeric_limits<Int>::max();
  if (value <= kLow) return std::numeric_limits<Int>::min();
  return value == value ? static_cast<Int>(value) : Int{0};
}

// An element type: Stored lies in buffers, Accumulator is what sums are kept in.
template <class Int>
struct IntElement {
  using Stored = Int;
  using Accumulator = Int;
  static Int load(Int stored) { return stored; }
  static Int store(Int value) { return value; }
  static Int scaled(Int value, double factor) { return saturate<Int>(factor * static_cast<double>(value)); }
  static Int finished(Int value, double divisor, double postscale) {
    return saturate<Int>(postscale * (static_cast<double>(value) / divisor));
  }
};

// 0 and 1; factors have no meaning and are not applied.
struct BoolElement {
  using Stored = std::uint8_t;
  using Accumulator = bool;
  static bool load(std::uint8_t stored) { return stored != 0; }
  static std::uint8_t store(bool value) { return value ? 1 : 0; }
  static bool scaled(bool value, double /*factor*/) { return value; }
  static bool finished(bool value, double /*divisor*/, double /*postscale*/) { return value; }
};

template <class Float>
struct ScaledFloat {
  using Accumulator = Float;
  static Float scaled(Float value, double factor) { return static_cast<Float>(factor) * value; }
  static Float finished(Float value, double divisor, double postscale) {
    return static_cast<Float>(postscale) * (value / static_cast<Float>(divisor));
  }
};

template <class Float>
struct FloatElement : ScaledFloat<Float> {
  using Stored = Float;
  static Float load(Float stored) { return stored; }
  static Float store(Float value) { return value == value ? value : std::numeric_limits<Float>::quiet_NaN(); }
};

// A 16- or 8-bit float: sums are kept in float32.
struct Float16Element : ScaledFloat<float> {
  using Stored = std::uint16_t;
  static float load(std::uint16_t stored) { return float16_to_float(stored); }
  static std::uint16_t store(float value) { return float_to_float16(value); }
};

struct BFloat16Element : ScaledFloat<float> {
  using Stored = std::uint16_t;
  static float load(std::uint16_t stored) { return bfloat16_to_float(stored); }
  static std::uint16_t store(float value) { return float_to_bfloat16(value); }
};

struct Float8E4m3Element : ScaledFloat<float> {
  using Stored = std::uint8_t;
  static float load(std::uint8_t stored) { return float8_e4m3_to_float(stored); }
  static std::uint8_t store(float value) { return float_to_float8_e4m3(value); }
};

struct Float8E5m2Element : ScaledFloat<float> {
  using Stored = std::uint8_t;
  static float load(std::uint8_t stored) { return float8_e5m2_to_float(stored); }
  static std::uint8_t store(float value) { return float_to_float8_e5m2(value); }
};

// Two floats, each with its own NaN; a factor scales both.
template <class Float>
struct Complex {
  Float real;
  Float imaginary;
};

template <class Float>
struct ComplexElement {
  using Stored = Complex<Float>;
  using Accumulator = Complex<Float>;
  using Part = FloatElement<Float>;
  static Stored load(Stored stored) { return stored; }
  static Stored store(Stored value) { return {Part::store(value.real), Part::store(value.imaginary)}; }
  static Stored scaled(Stored value, double factor) {
    return {Part::scaled(value.real, factor), Part::scaled(value.imaginary, factor)};
  }
  static Stored finished(Stored value, double divisor, double postscale) {
    return {Part::finished(value.real, divisor, postscale), Part::finished(value.imaginary, divisor, postscale)};
  }
};

template <class T>
inline constexpr bool kIsComplex = false;
template <class Float>
inline constexpr bool kIsComplex<Complex<Float>> = true;

// Integers wrap: the arithmetic is done in the unsigned type of at least 32 bits.
template <class Int>
using Wrapping = std::make_unsigned_t<std::common_type_t<Int, std::int32_t>>;

struct Sum {
  template <class T>
  static T apply(T a, T b) {
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

// Of complex numbers by the formula of the textbook: an infinity may become a NaN.
struct Product {
  template <class T>
  static T apply(T a, T b) {
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

// min and max of floats: equal values differ at most in the sign of zero, which or (min) and and (max) of the bits
// decide; adding propagates a NaN.
template <class Float>
using BitsOf = std::conditional_t<sizeof(Float) == 4, std::uint32_t, std::uint64_t>;

struct Min {
  template <class T>
  static T apply(T a, T b) {
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
  static T apply(T a, T b) {
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

// Bits of integers and of bools.
struct BitAnd {
  template <class T>
  static T apply(T a, T b) {
    return static_cast<T>(a & b);
  }
};

struct BitOr {
  template <class T>
  static T apply(T a, T b) {
    return static_cast<T>(a | b);
  }
};

struct BitXor {
  template <class T>
  static T apply(T a, T b) {
    return static_cast<T>(a ^ b);
  }
};

// Where the operation is defined on what sums are kept in; horo/base/types.h says the same of the types.
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
