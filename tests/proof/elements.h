// Element types and operations as docs/canonical_order.md and docs/types.md define them, independent of the kernels:
// values are decoded and rounded by arithmetic on doubles, not by operations on bits. The reference of the property
// test.
#pragma once

#include <cstddef>
#include <cstdint>
#include <random>
#include <vector>

#include "horo/base/types.h"

namespace horo::proof {

// The format of an element.
struct Format {
  enum class Family { kInteger, kBool, kFloat, kComplex };
  Family family = Family::kFloat;
  int bytes = 4;           // of one element
  bool is_signed = true;   // integers
  int exponent_bits = 8;   // of floats, and of the parts of a complex number
  int mantissa_bits = 23;  // without the leading bit
  bool saturates = false;  // a float without infinities; numbers with the greatest exponent are finite
};
Format format_of(DType dtype);

// A value of the accumulator: an integer, or one or two doubles with the precision of the accumulator.
struct Value {
  __int128 whole = 0;
  double re = 0;
  double im = 0;
};

// The exact value; a double can represent every value of every format.
double decode_float(std::uint64_t bits, const Format& format);
// Rounds to nearest, ties to even.
std::uint64_t encode_float(double value, const Format& format);

// The arithmetic of one reduction.
class Arithmetic {
 public:
  struct Factors {
    double prescale = 1;
    double postscale = 1;
    double divisor = 1;  // 1 unless the operation is an average
  };
  Arithmetic(DType dtype, ReduceOp op, const Factors& factors);

  const Format& format() const { return format_; }
  // prescale * widen(element).
  Value load(const std::byte* element) const;
  Value join(const Value& left, const Value& right) const;
  // round(postscale * (value / divisor)).
  void store(const Value& value, std::byte* element) const;

  // For sums in any order: the greatest rounding error of a sum of `terms`, before it is divided and rounded.
  long double slack(const std::vector<double>& terms) const;
  bool is_exact_in_any_order() const;
  double unit() const { return narrow_ ? 0x1p-24 : 0x1p-53; }  // rounding error of the accumulator
  ReduceOp op() const { return op_; }
  // postscale * (sum / divisor) for a sum in higher precision.
  double finished(long double sum) const;
  double rounded(double value) const;  // to the element type

 private:
  double narrow(double value) const { return narrow_ ? static_cast<float>(value) : value; }
  __int128 wrap(__int128 value) const;
  __int128 saturate(double value) const;
  __int128 within(__int128 whole) const;
  __int128 contribution(double value) const;
  __int128 finished_whole(__int128 whole) const;
  double join_real(double left, double right) const;

  const ReduceOp op_;
  const Factors factors_;
  const Format format_;
  const bool narrow_;  // sums are kept in float32
};

// The distribution of random elements.
enum class Flavour {
  kSmall,  // integers whose sums are exact
  kWide,   // many magnitudes, so that sums depend on the order
  kWild,   // any bits, including NaNs, infinities, subnormal numbers, the greatest and least integers
};
const char* name_of(Flavour flavour);

void draw_element(std::byte* element, DType dtype, Flavour flavour, std::mt19937_64& random);

}  // namespace horo::proof
