// Element types and operations as DESIGN section 5 words them, written again from the words and without a line of the
// kernels: values are decoded and rounded by arithmetic on doubles, not by moving bits about. What the property test
// believes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <random>
#include <vector>

#include "horo/base/types.h"

namespace horo::proof {

// What an element is made of.
struct Format {
  enum class Family { kInteger, kBool, kFloat, kComplex };
  Family family = Family::kFloat;
  int bytes = 4;           // of one element
  bool is_signed = true;   // integers
  int exponent_bits = 8;   // floats, and the halves of a complex number
  int mantissa_bits = 23;  // without the leading one
  bool saturates = false;  // a float without infinities: the greatest exponent is one more of finite numbers
};
Format format_of(DType dtype);

// A value on its way through a reduction: a whole number, or one or two doubles that hold what the accumulator holds.
struct Value {
  __int128 whole = 0;
  double re = 0;
  double im = 0;
};

// A value of any format, exactly; a double holds each of them.
double decode_float(std::uint64_t bits, const Format& format);
// To nearest, ties to even.
std::uint64_t encode_float(double value, const Format& format);

// One reduction of one type.
class Arithmetic {
 public:
  struct Factors {
    double prescale = 1;
    double postscale = 1;
    double divisor = 1;  // 1 unless it is an average
  };
  Arithmetic(DType dtype, ReduceOp op, const Factors& factors);

  const Format& format() const { return format_; }
  // prescale * widen(element).
  Value load(const std::byte* element) const;
  Value join(const Value& left, const Value& right) const;
  // round(postscale * (value / divisor)).
  void store(const Value& value, std::byte* element) const;

  // For sums in any order: how much more or less than `sum` a result may be before it is divided and rounded, if it was
  // made of `terms`.
  long double slack(const std::vector<double>& terms) const;
  bool is_exact_in_any_order() const;
  double unit() const { return narrow_ ? 0x1p-24 : 0x1p-53; }  // rounding error of the accumulator
  ReduceOp op() const { return op_; }
  // What store() would round, made of a sum in higher precision, as an element of the type.
  double finished(long double sum) const;
  double rounded(double value) const;  // to the element type

 private:
  double narrow(double value) const { return narrow_ ? static_cast<float>(value) : value; }
  __int128 wrap(__int128 value) const;
  __int128 saturate(double value) const;
  double join_real(double left, double right) const;

  const ReduceOp op_;
  const Factors factors_;
  const Format format_;
  const bool narrow_;  // sums are kept in float32
};

// How elements are drawn.
enum class Flavour {
  kSmall,  // whole numbers whose sums are exact
  kWide,   // many magnitudes: every change of order shows
  kWild,   // any bits: NaNs, infinities, subnormal numbers, the greatest and least integers
};
const char* name_of(Flavour flavour);

void draw_element(std::byte* element, DType dtype, Flavour flavour, std::mt19937_64& random);

}  // namespace horo::proof
