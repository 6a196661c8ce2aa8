// Vector registers of elements: loads, stores and sums, with the results of element.h bit for bit. The vector types of
// the compilers give g++ and clang the same loops, and allow an output that is also an input, which an automatic
// vectorizer must rule out. Everything has internal linkage, for the reasons given in element.h.
#pragma once

#if defined(__AVX2__)
#include <immintrin.h>
#endif

#include "ring/reduce/element.h"

namespace horo {
namespace {

template <class T, std::size_t kBytes>
struct VectorOf {
  typedef T Type __attribute__((vector_size(kBytes)));
};
template <class T, std::size_t kBytes>
using Vector = typename VectorOf<T, kBytes>::Type;

template <class V>
V vector_at(const std::byte* from) {
  V value;
  std::memcpy(&value, from, sizeof(value));
  return value;
}

template <class V>
void put_vector(std::byte* to, const V& value) {
  std::memcpy(to, &value, sizeof(value));
}

// The elements of a vector register of kBytes. kWidth: their number; 0: the type has no vector form.
template <class Element, std::size_t kBytes>
struct SimdVector {
  static constexpr std::size_t kWidth = 0;
};

// Integers wrap, because the register holds unsigned elements. Factors are not supported.
template <class Int, std::size_t kBytes>
requires(kBytes > 0) struct SimdVector<IntElement<Int>, kBytes> {
  using Value = Vector<std::make_unsigned_t<Int>, kBytes>;
  static constexpr std::size_t kWidth = kBytes / sizeof(Int);
  static constexpr bool kScales = false;
  static Value load(const std::byte* from) { return vector_at<Value>(from); }
  static void store(std::byte* to, const Value& value) { put_vector(to, value); }
};

template <class Float, std::size_t kBytes>
struct FloatVector {
  using Value = Vector<Float, kBytes>;
  static constexpr std::size_t kWidth = kBytes / sizeof(Float);
  static constexpr bool kScales = true;
  static Value finished(const Value& value, const Scaling& scaling) {
    return static_cast<Float>(scaling.postscale) * (value / static_cast<Float>(scaling.divisor));
  }
};

template <class Float, std::size_t kBytes>
requires(kBytes > 0) struct SimdVector<FloatElement<Float>, kBytes> : FloatVector<Float, kBytes> {
  using Value = Vector<Float, kBytes>;
  static Value load(const std::byte* from) { return vector_at<Value>(from); }
  static void store(std::byte* to, const Value& value) {
    const Value nan = Value{} + std::numeric_limits<Float>::quiet_NaN();
    put_vector<Value>(to, value == value ? value : nan);
  }
};

// Conversions between 16 and 32 bits per element. g++ 12 compiles __builtin_convertvector to twice as many
// instructions.
template <std::size_t kBytes>
Vector<std::uint32_t, kBytes> widened(const Vector<std::uint16_t, kBytes / 2>& halves) {
  using Wide = Vector<std::uint32_t, kBytes>;
#if defined(__AVX512F__)
  return std::bit_cast<Wide>(_mm512_maskz_cvtepu16_epi32(0xffff, std::bit_cast<__m256i>(halves)));
#elif defined(__AVX2__)
  return std::bit_cast<Wide>(_mm256_cvtepu16_epi32(std::bit_cast<__m128i>(halves)));
#else
  return __builtin_convertvector(halves, Wide);
#endif
}

template <std::size_t kBytes>
Vector<std::uint16_t, kBytes / 2> narrowed(const Vector<std::uint32_t, kBytes>& wide) {
  using Halves = Vector<std::uint16_t, kBytes / 2>;
#if defined(__AVX512F__)
  return std::bit_cast<Halves>(_mm512_maskz_cvtepi32_epi16(0xffff, std::bit_cast<__m512i>(wide)));
#elif defined(__AVX2__)
  const auto all = std::bit_cast<__m256i>(wide);
  return std::bit_cast<Halves>(_mm_packus_epi32(_mm256_castsi256_si128(all), _mm256_extracti128_si256(all, 1)));
#else
  return __builtin_convertvector(wide, Halves);
#endif
}

template <std::size_t kBytes>
requires(kBytes > 0) struct SimdVector<BFloat16Element, kBytes> : FloatVector<float, kBytes> {
  using Value = Vector<float, kBytes>;
  using Bits = Vector<std::uint32_t, kBytes>;
  using Stored = Vector<std::uint16_t, kBytes / 2>;
  static Value load(const std::byte* from) {
    return std::bit_cast<Value>(widened<kBytes>(vector_at<Stored>(from)) << 16);
  }
  static void store(std::byte* to, const Value& value) {
    const Bits bits = std::bit_cast<Bits>(value);
    const Bits rounded = (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16;
    const Bits nan = Bits{} + std::uint32_t{kNanBFloat16};
    put_vector(to, narrowed<kBytes>(value == value ? rounded : nan));
  }
};

// float16 with the conversions of the processor, which round to nearest even and support subnormal numbers.
#if defined(__AVX512F__)
template <>
struct SimdVector<Float16Element, 64> : FloatVector<float, 64> {
  static Value load(const std::byte* from) {
    return _mm512_maskz_cvtph_ps(0xffff, _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from)));
  }
  static void store(std::byte* to, const Value& value) {
    const __m256i half = _mm512_maskz_cvtps_ph(0xffff, value, _MM_FROUND_TO_NEAREST_INT);
    const __mmask16 nans = _mm512_cmp_ps_mask(value, value, _CMP_UNORD_Q);
    const auto out = _mm256_mask_blend_epi16(nans, half, _mm256_set1_epi16(kNanFloat16));
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(to), out);
  }
};
#elif defined(__F16C__)
template <>
struct SimdVector<Float16Element, 32> : FloatVector<float, 32> {
  static Value load(const std::byte* from) {
    return _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(from)));
  }
  static void store(std::byte* to, const Value& value) {
    const __m128i half = _mm256_cvtps_ph(value, _MM_FROUND_TO_NEAREST_INT);
    const __m256i nans = _mm256_castps_si256(_mm256_cmp_ps(value, value, _CMP_UNORD_Q));
    const __m128i narrow = _mm_packs_epi32(_mm256_castsi256_si128(nans), _mm256_extracti128_si256(nans, 1));
    const __m128i out = _mm_blendv_epi8(half, _mm_set1_epi16(kNanFloat16), narrow);
    _mm_storeu_si128(reinterpret_cast<__m128i*>(to), out);
  }
};
#endif

// memcpy() of fewer than kLess bytes, a power of two, by halves.
template <std::size_t kLess>
void copy_few(std::byte* to, const std::byte* from, std::size_t bytes) {
  if constexpr (kLess > 1) {
    constexpr std::size_t kHalf = kLess / 2;
    if (bytes & kHalf) std::memcpy(to, from, kHalf), to += kHalf, from += kHalf;
    copy_few<kHalf>(to, from, bytes & (kHalf - 1));
  }
}

// The canonical tree over contributors 0..kInputs-1, for the elements of one register.
template <class L, int kInputs>
typename L::Value sum_of(const std::byte* const* inputs, std::size_t at_byte) {
  if constexpr (kInputs == 1) {
    return L::load(inputs[0] + at_byte);
  } else {
    constexpr int kLeft = std::bit_floor(static_cast<unsigned>(kInputs - 1));
    return sum_of<L, kLeft>(inputs, at_byte) + sum_of<L, kInputs - kLeft>(inputs + kLeft, at_byte);
  }
}

// The last elements of inputs and outputs, fewer than a register has: copied into whole registers, and back.
template <std::size_t kBytes>
[[gnu::noinline]] void gather_rest(std::byte (*registers)[kBytes], const std::byte* const* from, int inputs,
                                   std::size_t begin, std::size_t bytes) {
  for (int k = 0; k < inputs; ++k) {
    std::memset(registers[k], 0, kBytes);
    copy_few<kBytes>(registers[k], from[k] + begin, bytes);
  }
}

template <std::size_t kBytes>
[[gnu::noinline]] void scatter_rest(std::byte* const* to, int outs, const std::byte* result, std::size_t begin,
                                    std::size_t bytes) {
  for (int k = 0; k < outs; ++k) copy_few<kBytes>(to[k] + begin, result, bytes);
}

// Sums kInputs inputs and calls put(address, value) for each register and each of `outs`, whose elements have
// kOutBytes. All inputs of a register are loaded before its results are stored, so an output may be an input with
// elements of the same size.
template <class L, int kInputs, int kOuts, std::size_t kInBytes, std::size_t kOutBytes, class Put>
void sum_in_registers(const std::byte* const* inputs, std::byte* const* outs, std::size_t count, Put put) {
  constexpr std::size_t kWidth = L::kWidth;
  const std::byte* from[kInputs];
  std::byte* to[kOuts];
  for (int k = 0; k < kInputs; ++k) from[k] = inputs[k];
  for (int k = 0; k < kOuts; ++k) to[k] = outs[k];
  std::size_t i = 0;
  for (; i + kWidth <= count; i += kWidth) {
    const typename L::Value value = sum_of<L, kInputs>(from, i * kInBytes);
    for (int k = 0; k < kOuts; ++k) put(to[k] + i * kOutBytes, value);
  }
  if (i == count) return;
  std::byte in_rest[kInputs][kWidth * kInBytes], out_rest[kWidth * kOutBytes];
  gather_rest<kWidth * kInBytes>(in_rest, inputs, kInputs, i * kInBytes, (count - i) * kInBytes);
  for (int k = 0; k < kInputs; ++k) from[k] = in_rest[k];
  put(out_rest, sum_of<L, kInputs>(from, 0));
  scatter_rest<kWidth * kOutBytes>(outs, kOuts, out_rest, i * kOutBytes, (count - i) * kOutBytes);
}

// memcpy() for large copies. glibc copies them with one instruction (rep movsb), which on some processors (AMD Zen 3
// and 4) takes several times as long if the distance of the two places is nearly a multiple of a page.
template <std::size_t kBytes>
void copy_vectors(std::byte* to, const std::byte* from, std::size_t bytes) {
  using V = Vector<std::uint64_t, kBytes>;
  constexpr std::size_t kStride = 4 * kBytes;
  std::size_t i = 0;
  for (; i + kStride <= bytes; i += kStride) {
    const V a = vector_at<V>(from + i), b = vector_at<V>(from + i + kBytes);
    const V c = vector_at<V>(from + i + 2 * kBytes), d = vector_at<V>(from + i + 3 * kBytes);
    put_vector(to + i, a), put_vector(to + i + kBytes, b);
    put_vector(to + i + 2 * kBytes, c), put_vector(to + i + 3 * kBytes, d);
    asm volatile("" ::: "memory");  // keeps the compiler from replacing the loop by memcpy()
  }
  if (i < bytes) std::memcpy(to + i, from + i, bytes - i);
}

}  // namespace
}  // namespace horo
