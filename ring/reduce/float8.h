// Conversions between float32 and the two 8-bit floats of the OCP specification "OFP8" (2023): exact when widening,
// round-to-nearest-even when narrowing. e4m3 ("fn") has no infinity: larger numbers and infinities become +-448. e5m2
// is a truncated float16 and has infinities. Each format has one NaN that is ever written. No branches and internal
// linkage, for the reasons given in half.h.
#pragma once

#include <bit>
#include <cstdint>

namespace horo {

inline constexpr std::uint8_t kNanFloat8E4m3 = 0x7f;
inline constexpr std::uint8_t kNanFloat8E5m2 = 0x7e;
inline constexpr std::uint8_t kLargestFloat8E4m3 = 0x7e;   // 448
inline constexpr std::uint8_t kInfinityFloat8E5m2 = 0x7c;  // the largest finite one is 57344

namespace {

// A format with the usual bias and subnormals, but without special values.
template <int kExponentBits, int kMantissaBits>
struct SmallFloat {
  static constexpr int kShift = 23 - kMantissaBits;  // from its mantissa to that of a float
  static constexpr std::uint32_t kBias = 127 - ((1 << (kExponentBits - 1)) - 1);  // between the exponents
  static constexpr std::uint32_t kFirstNormal = (kBias + 1) << 23;  // its least normal number, as bits of a float

  // Widens a number without its sign.
  static constexpr float widen(std::uint32_t magnitude) {
    const std::uint32_t moved = magnitude << kShift;
    const std::uint32_t normal = moved + (kBias << 23);
    // A subnormal number is a normal float: a float subtraction shifts its leading bit into place.
    const float small = std::bit_cast<float>(moved + kFirstNormal) - std::bit_cast<float>(kFirstNormal);
    return moved < (1u << 23) ? small : std::bit_cast<float>(normal);
  }

  // Narrows the magnitude `bits` of a float. A number that does not fit becomes one above all numbers that do.
  static constexpr std::uint32_t narrow(std::uint32_t bits) {
    // A float whose last mantissa bit has the weight of a subnormal number's last bit: adding it rounds.
    constexpr std::uint32_t kAlign = (kBias + 1 + kShift) << 23;
    const float aligned = std::bit_cast<float>(bits < kFirstNormal ? bits : 0u) + std::bit_cast<float>(kAlign);
    const std::uint32_t small = std::bit_cast<std::uint32_t>(aligned) - kAlign;
    const std::uint32_t odd = (bits >> kShift) & 1u;
    const std::uint32_t normal = (bits - (kBias << 23) + ((1u << (kShift - 1)) - 1) + odd) >> kShift;
    return bits < kFirstNormal ? small : normal;
  }
};

}  // namespace

static constexpr float float8_e4m3_to_float(std::uint8_t eighth) {
  const std::uint32_t magnitude = eighth & 0x7fu;
  const std::uint32_t value = std::bit_cast<std::uint32_t>(SmallFloat<4, 3>::widen(magnitude));
  return std::bit_cast<float>((magnitude == kNanFloat8E4m3 ? 0x7fc00000u : value) | (eighth & 0x80u) << 24);
}

static constexpr float float8_e5m2_to_float(std::uint8_t eighth) {
  const std::uint32_t magnitude = eighth & 0x7fu;
  const std::uint32_t value = std::bit_cast<std::uint32_t>(SmallFloat<5, 2>::widen(magnitude));
  const std::uint32_t special = magnitude > kInfinityFloat8E5m2 ? 0x7fc00000u : 0x7f800000u;
  return std::bit_cast<float>((magnitude >= kInfinityFloat8E5m2 ? special : value) | (eighth & 0x80u) << 24);
}

static constexpr std::uint8_t float_to_float8_e4m3(float value) {
  const std::uint32_t all = std::bit_cast<std::uint32_t>(value);
  const std::uint32_t bits = all & 0x7fffffffu;
  const std::uint32_t rounded = SmallFloat<4, 3>::narrow(bits);
  const std::uint32_t magnitude = rounded > kLargestFloat8E4m3 ? kLargestFloat8E4m3 : rounded;
  const std::uint32_t number = magnitude | (all >> 31) << 7;
  return static_cast<std::uint8_t>(bits > 0x7f800000u ? kNanFloat8E4m3 : number);
}

static constexpr std::uint8_t float_to_float8_e5m2(float value) {
  const std::uint32_t all = std::bit_cast<std::uint32_t>(value);
  const std::uint32_t bits = all & 0x7fffffffu;
  const std::uint32_t rounded = SmallFloat<5, 2>::narrow(bits);
  const std::uint32_t magnitude = rounded > kInfinityFloat8E5m2 ? kInfinityFloat8E5m2 : rounded;
  const std::uint32_t number = magnitude | (all >> 31) << 7;
  return static_cast<std::uint8_t>(bits > 0x7f800000u ? kNanFloat8E5m2 : number);
}

}  // namespace horo
