// The built-in codecs. Their loops have no branches and use arrays on the stack, so that compilers vectorize them. They
// use IEEE arithmetic only, so that every processor writes the same bytes.
//
// The scale of a block follows its largest finite value, so that an infinity does not change its neighbours. fp8 is
// close to the "MX" formats (OCP, 2023), whose scale is an exponent. Error feedback adds the coding error to the next
// values: Seide et al., "1-bit stochastic gradient descent", 2014; Karimireddy et al., "Error feedback fixes SignSGD",
// 2019.

#include <algorithm>
#include <bit>
#include <cfloat>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>

#include "ring/codec/codec.h"
#include "ring/reduce/float8.h"
#include "ring/reduce/half.h"

namespace horo {
namespace {

constexpr std::uint32_t kMagnitude = 0x7fffffff;
constexpr std::uint32_t kInfinity = 0x7f800000;
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

std::uint32_t magnitude_of(float value) {
  return std::bit_cast<std::uint32_t>(value) & kMagnitude;
}
bool is_finite(float value) {
  return magnitude_of(value) < kInfinity;
}

template <std::uint16_t (*kNarrow)(float), float (*kWiden)(std::uint16_t)>
class HalfCodec final : public Codec {
 public:
  explicit HalfCodec(const char* name) : name_(name) {}
  const std::string& name() const override { return name_; }
  std::size_t block() const override { return 1; }
  std::size_t wire_bytes(std::size_t count) const override { return 2 * count; }
  bool stateful() const override { return false; }

  void encode(const float* x, float* /*residual*/, std::byte* wire, std::size_t count) const override {
    for (std::size_t i = 0; i < count; ++i) {
      const std::uint16_t half = kNarrow(x[i]);
      std::memcpy(wire + 2 * i, &half, 2);
    }
  }
  void decode(const std::byte* wire, float* out, std::size_t count) const override {
    for (std::size_t i = 0; i < count; ++i) {
      std::uint16_t half;
      std::memcpy(&half, wire + 2 * i, 2);
      out[i] = kWiden(half);
    }
  }

 private:
  const std::string name_;
};

// A format of BlockCodec: one byte per element, and a scale per block.
//   put_scale  chooses the scale for the largest finite magnitude, 0 for 0; writes and returns it
//   scale      reads a scale
//   inverse    1 / scale, or 0 for a scale of 0
//   code       the byte for value / scale, for a finite value
//   value      the value of any byte, not scaled
struct Fp8 {
  static constexpr std::size_t kBlock = 32;
  static constexpr std::size_t kScaleBytes = 1;
  static constexpr bool kStateful = false;

  // The scale is a power of two, stored as a float's biased exponent. It maps the largest value into (224, 448].
  static float put_scale(float largest, std::byte* wire) {
    constexpr std::uint32_t kFraction = 0x7fffff;
    constexpr std::uint32_t kThreeQuarters = 0x600000;
    const std::uint32_t bits = std::bit_cast<std::uint32_t>(largest);
    const int above = (bits & kFraction) > kThreeQuarters ? 7 : 8;
    const int exponent = std::max(1, static_cast<int>(bits >> 23) - above);
    const auto biased = static_cast<std::uint8_t>(bits == 0 ? 0 : exponent);
    *wire = std::byte{biased};
    return power(biased);
  }
  static float scale(const std::byte* wire) { return power(std::to_integer<std::uint8_t>(*wire)); }
  static float inverse(float scale) { return scale > 0 ? 1.0f / scale : 0.0f; }
  static std::uint8_t code(float scaled) { return float_to_float8_e4m3(scaled); }
  static constexpr std::uint8_t kNotFinite = kNanFloat8E4m3;
  static float value(std::uint8_t code) { return float8_e4m3_to_float(code); }

 private:
  static float power(std::uint8_t biased) { return std::bit_cast<float>(std::uint32_t{biased} << 23); }
};

struct Int8 {
  static constexpr std::size_t kBlock = 256;
  static constexpr std::size_t kScaleBytes = 4;
  static constexpr bool kStateful = true;
  static constexpr float kMost = 127.0f;

  static float put_scale(float largest, std::byte* wire) {
    // A subnormal scale would have too few significant bits.
    float scale = std::max(largest / kMost, FLT_MIN);
    if (largest == 0) scale = 0;
    const std::uint32_t bits = std::bit_cast<std::uint32_t>(scale);
    for (std::size_t i = 0; i < kScaleBytes; ++i) wire[i] = static_cast<std::byte>(bits >> (8 * i));
    return scale;
  }
  static float scale(const std::byte* wire) {
    std::uint32_t bits = 0;
    for (std::size_t i = 0; i < kScaleBytes; ++i) bits |= std::to_integer<std::uint32_t>(wire[i]) << (8 * i);
    return std::bit_cast<float>(bits);
  }
  static float inverse(float scale) { return scale > 0 ? 1.0f / scale : 0.0f; }
  // Adding a number whose last mantissa bit has the weight 1 rounds to an integer, ties to even.
  static std::uint8_t code(float scaled) {
    constexpr float kOnes = 12582912.0f;
    const std::uint32_t rounded = std::bit_cast<std::uint32_t>(scaled + kOnes) - std::bit_cast<std::uint32_t>(kOnes);
    return static_cast<std::uint8_t>(rounded);
  }
  static constexpr std::uint8_t kNotFinite = 0x80;
  static float value(std::uint8_t code) {
    const float number = static_cast<float>(static_cast<std::int8_t>(code));
    return code == kNotFinite ? kNan : number;
  }
};

template <class Format>
class BlockCodec final : public Codec {
 public:
  explicit BlockCodec(const char* name) : name_(name) {}
  const std::string& name() const override { return name_; }
  std::size_t block() const override { return Format::kBlock; }
  std::size_t wire_bytes(std::size_t count) const override {
    return count + (count + Format::kBlock - 1) / Format::kBlock * Format::kScaleBytes;
  }
  bool stateful() const override { return Format::kStateful; }

  void encode(const float* x, float* residual, std::byte* wire, std::size_t count) const override {
    for_blocks(count, [&](std::size_t at, std::size_t n, std::size_t offset) {
      encode_block(x + at, Format::kStateful && residual ? residual + at : nullptr, wire + offset, n);
    });
  }
  void decode(const std::byte* wire, float* out, std::size_t count) const override {
    for_blocks(count, [&](std::size_t at, std::size_t n, std::size_t offset) {
      const float scale = Format::scale(wire + offset);
      const std::byte* codes = wire + offset + Format::kScaleBytes;
      for (std::size_t i = 0; i < n; ++i) {
        out[at + i] = value_of(codes[i], scale);
      }
    });
  }

 private:
  // Calls f(first element, elements, first byte) for each block.
  template <class F>
  static void for_blocks(std::size_t count, F f) {
    std::size_t offset = 0;
    for (std::size_t at = 0; at < count; at += Format::kBlock) {
      const std::size_t n = std::min(Format::kBlock, count - at);
      f(at, n, offset);
      offset += Format::kScaleBytes + n;
    }
  }

  static void encode_block(const float* x, float* residual, std::byte* wire, std::size_t n) {
    float values[Format::kBlock];
    if (residual) {
      for (std::size_t i = 0; i < n; ++i) values[i] = x[i] + residual[i];
    } else {
      std::copy_n(x, n, values);
    }
    const float scale = Format::put_scale(largest_of(values, n), wire);
    const float inverse = Format::inverse(scale);
    std::byte* codes = wire + Format::kScaleBytes;
    for (std::size_t i = 0; i < n; ++i) {
      const std::uint8_t code = Format::code(values[i] * inverse);
      codes[i] = std::byte{is_finite(values[i]) ? code : Format::kNotFinite};
    }
    if (!residual) return;
    for (std::size_t i = 0; i < n; ++i) {
      const float lost = values[i] - value_of(codes[i], scale);
      residual[i] = is_finite(values[i]) ? lost : 0.0f;
    }
  }

  // A value that rounds beyond the largest float becomes the largest float.
  static float value_of(std::byte code, float scale) {
    const float value = Format::value(std::to_integer<std::uint8_t>(code)) * scale;
    const float below = value < FLT_MAX ? value : FLT_MAX;
    const float finite = below > -FLT_MAX ? below : -FLT_MAX;
    return value == value ? finite : kNan;
  }

  // Compares as integers, because magnitudes of floats have the order of their bits.
  static float largest_of(const float* values, std::size_t n) {
    std::int32_t largest = 0;
    for (std::size_t i = 0; i < n; ++i) {
      const auto bits = static_cast<std::int32_t>(magnitude_of(values[i]));
      const std::int32_t finite = bits < static_cast<std::int32_t>(kInfinity) ? bits : 0;
      largest = finite > largest ? finite : largest;
    }
    return std::bit_cast<float>(largest);
  }

  const std::string name_;
};

}  // namespace

std::vector<std::unique_ptr<Codec>> built_in_codecs() {
  std::vector<std::unique_ptr<Codec>> codecs;
  codecs.push_back(std::make_unique<HalfCodec<float_to_float16, float16_to_float>>("fp16"));
  codecs.push_back(std::make_unique<HalfCodec<float_to_bfloat16, bfloat16_to_float>>("bf16"));
  codecs.push_back(std::make_unique<BlockCodec<Fp8>>("fp8"));
  codecs.push_back(std::make_unique<BlockCodec<Int8>>("int8"));
  return codecs;
}

bool can_be_coded(CollectiveKind kind, ReduceOp op, DType dtype) {
  const bool is_float =
      dtype == DType::kFloat32 || dtype == DType::kFloat64 || dtype == DType::kFloat16 || dtype == DType::kBFloat16;
  return kind == CollectiveKind::kAllReduce && (op == ReduceOp::kSum || op == ReduceOp::kAverage) && is_float;
}

}  // namespace horo
