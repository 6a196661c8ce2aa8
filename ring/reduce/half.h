// Conversions between float32 and float16 (IEEE 754 binary16) or bfloat16: exact when widening, round-to-nearest-even
// when narrowing. They have no branches, so that compilers vectorize loops over them. They are static, because each
// translation unit compiles them for its own instruction set. After Fabian Giesen's conversions ("float->half
// variants", 2012, public domain).
#pragma once

#include <bit>
#include <cstdint>

namespace horo {

inline constexpr std::uint16_t kNanFloat16 = 0x7e00;
inline constexpr std::uint16_t kNanBFloat16 = 0x7fc0;

static constexpr float float16_to_float(std::uint16_t half) {
  constexpr std::uint32_t kExponent = 0x7c00u << 13;
  const std::uint32_t magnitude = (half & 0x7fffu) << 13;
  const std::uint32_t exponent = magnitude & kExponent;
  const std::uint32_t normal = magnitude + ((127u - 15u) << 23);
  const std::uint32_t special = normal + ((128u - 16u) << 23);
  // A subnormal half is a normal float: a float subtraction shifts its leading bit into place.
  const float small = std::bit_cast<float>(normal + (1u << 23)) - std::bit_cast<float>(113u << 23);
  std::uint32_t bits = exponent == kExponent ? special : normal;
  bits = exponent == 0 ? std::bit_cast<std::uint32_t>(small) : bits;
  return std::bit_cast<float>(bits | (half & 0x8000u) << 16);
}

static constexpr std::uint16_t float_to_float16(float value) {
  const std::uint32_t all = std::bit_cast<std::uint32_t>(value);
  const std::uint32_t sign = all & 0x80000000u;
  const std::uint32_t bits = all ^ sign;
  constexpr std::uint32_t kHalf = 0x3f000000u;  // 0.5f: its last mantissa bit has the weight of a subnormal half's
  const float aligned = std::bit_cast<float>(bits < (113u << 23) ? bits : 0u) + std::bit_cast<float>(kHalf);
  const std::uint32_t small = std::bit_cast<std::uint32_t>(aligned) - kHalf;
  const std::uint32_t odd = (bits >> 13) & 1u;
  const std::uint32_t normal = (bits - ((127u - 15u) << 23) + 0xfffu + odd) >> 13;
  const std::uint32_t special = bits > 0x7f800000u ? std::uint32_t{kNanFloat16} : 0x7c00u;
  std::uint32_t half = bits < (113u << 23) ? small : normal;
  half = bits >= 0x47800000u ? special : half;
  // A NaN loses its sign, because only one NaN is ever written.
  return static_cast<std::uint16_t>(half | (bits > 0x7f800000u ? 0u : sign >> 16));
}

static constexpr float bfloat16_to_float(std::uint16_t half) {
  return std::bit_cast<float>(std::uint32_t{half} << 16);
}

static constexpr std::uint16_t float_to_bfloat16(float value) {
  const std::uint32_t bits = std::bit_cast<std::uint32_t>(value);
  const std::uint32_t rounded = (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16;
  return static_cast<std::uint16_t>((bits & 0x7fffffffu) > 0x7f800000u ? kNanBFloat16 : rounded);
}

}  // namespace horo
