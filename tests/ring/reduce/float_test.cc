// The conversions of short floats against their definition: all codes, all midpoints between two codes, and random
// numbers.

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <random>

#include "ring/reduce/float8.h"
#include "ring/reduce/half.h"
#include "tests/ring/reduce/float_formats.h"

namespace horo {
namespace {

struct Conversion {
  FloatFormat format;
  float (*widen)(std::uint32_t);
  std::uint32_t (*narrow)(float);
  std::uint32_t nan;
};

std::uint16_t sixteen(std::uint32_t bits) {
  return static_cast<std::uint16_t>(bits);
}
std::uint8_t eight(std::uint32_t bits) {
  return static_cast<std::uint8_t>(bits);
}

const Conversion kConversions[] = {
    {kFloatFormats[0], [](std::uint32_t bits) { return float16_to_float(sixteen(bits)); },
     [](float value) -> std::uint32_t { return float_to_float16(value); }, 0x7e00},
    {kFloatFormats[1], [](std::uint32_t bits) { return bfloat16_to_float(sixteen(bits)); },
     [](float value) -> std::uint32_t { return float_to_bfloat16(value); }, 0x7fc0},
    {kFloatFormats[2], [](std::uint32_t bits) { return float8_e4m3_to_float(eight(bits)); },
     [](float value) -> std::uint32_t { return float_to_float8_e4m3(value); }, 0x7f},
    {kFloatFormats[3], [](std::uint32_t bits) { return float8_e5m2_to_float(eight(bits)); },
     [](float value) -> std::uint32_t { return float_to_float8_e5m2(value); }, 0x7e},
};

class ShortFloats : public testing::TestWithParam<Conversion> {};

INSTANTIATE_TEST_SUITE_P(All, ShortFloats, testing::ValuesIn(kConversions),
                         [](const auto& info) { return std::string(name_of(info.param.format.dtype)); });

TEST_P(ShortFloats, EveryCodeWidensExactlyAndNarrowsBack) {
  const auto& [format, widen, narrow, nan] = GetParam();
  for (std::uint32_t bits = 0; bits < format.codes(); ++bits) {
    const double value = meaning(format, bits);
    const float wide = widen(bits);
    ASSERT_TRUE(wide == value || (wide != wide && value != value)) << bits;
    ASSERT_EQ(std::signbit(wide), bits >= format.codes() / 2) << bits;
    ASSERT_EQ(narrow(wide), value != value ? nan : bits) << bits;
  }
}

// The code of a float by the definition.
void expect_nearest(const Conversion& conversion, float value) {
  const std::uint32_t bits = conversion.narrow(value);
  const double expected = nearest(conversion.format, value);
  if (expected != expected) {
    ASSERT_EQ(bits, conversion.nan);
    return;
  }
  const double narrowed = meaning(conversion.format, bits);
  ASSERT_EQ(narrowed, expected) << std::bit_cast<std::uint32_t>(value);
  ASSERT_EQ(std::signbit(narrowed), std::signbit(value));
}

// Rounding changes only at the midpoint of two neighbours, so a test at and beside every midpoint covers all floats.
TEST_P(ShortFloats, EveryMidpointBetweenTwoNeighboursIsCorrect) {
  const Conversion& conversion = GetParam();
  for (std::uint32_t bits = 0; meaning(conversion.format, bits) <= conversion.format.largest(); ++bits) {
    const double low = meaning(conversion.format, bits);
    const double next = meaning(conversion.format, bits + 1);
    const double high = next <= conversion.format.largest() ? next : 2 * low - meaning(conversion.format, bits - 1);
    const auto middle = static_cast<float>((low + high) / 2);
    for (const float value : {middle, std::nextafter(middle, 0.f), std::nextafter(middle, INFINITY)}) {
      expect_nearest(conversion, value);
      expect_nearest(conversion, -value);
    }
  }
}

TEST_P(ShortFloats, AMillionFloatsAreNarrowedToTheNearest) {
  std::mt19937_64 random(1);
  for (int i = 0; i < 500'000; ++i) {
    expect_nearest(GetParam(), std::bit_cast<float>(static_cast<std::uint32_t>(random())));
    // Most random bits are out of range of the format; these are in range.
    const int exponent = static_cast<int>(random() % 40) - 24;
    expect_nearest(GetParam(), std::ldexp(static_cast<float>(random() % (1 << 24)) - (1 << 23), exponent - 23));
  }
}

TEST_P(ShortFloats, LargerNumbersBecomeInfiniteOrTheLargest) {
  const auto& [format, widen, narrow, nan] = GetParam();
  const double most = format.has_infinity ? INFINITY : format.largest();
  EXPECT_EQ(widen(narrow(std::numeric_limits<float>::max())), most);
  EXPECT_EQ(widen(narrow(-INFINITY)), -most);
  EXPECT_EQ(narrow(std::bit_cast<float>(0xffc01234u)), nan);
  EXPECT_EQ(narrow(std::bit_cast<float>(0x7f800001u)), nan);
  EXPECT_EQ(narrow(-0.f), format.codes() / 2);
  EXPECT_EQ(narrow(std::numeric_limits<float>::denorm_min()), 0u);
}

TEST(ShortFloats, HaveTheseLargestNumbers) {
  const double largest[] = {65504, 0x1.fep127, 448, 57344};
  for (int i = 0; i < 4; ++i) EXPECT_EQ(kFloatFormats[i].largest(), largest[i]);
}

}  // namespace
}  // namespace horo
