#include "tests/proof/elements.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "horo/base/check.h"

namespace horo::proof {
namespace {

using Family = Format::Family;

std::uint64_t load_bits(const std::byte* from, int bytes) {
  std::uint64_t bits = 0;
  for (int i = 0; i < bytes; ++i) bits |= std::to_integer<std::uint64_t>(from[i]) << 8 * i;
  return bits;
}

void store_bits(std::uint64_t bits, std::byte* to, int bytes) {
  for (int i = 0; i < bytes; ++i) to[i] = static_cast<std::byte>(bits >> 8 * i & 0xff);
}

int bias_of(const Format& format) {
  return (1 << (format.exponent_bits - 1)) - 1;
}
std::uint64_t top_exponent(const Format& format) {
  return (std::uint64_t{1} << format.exponent_bits) - 1;
}
// The greatest finite number.
double greatest(const Format& format) {
  const int bias = bias_of(format), m = format.mantissa_bits;
  if (format.saturates) return std::ldexp(2.0 - std::ldexp(2.0, -m), bias + 1);  // all ones is the NaN
  return std::ldexp(2.0 - std::ldexp(1.0, -m), bias);
}

// The only NaN of results.
std::uint64_t quiet_nan(const Format& format) {
  const std::uint64_t exponent = top_exponent(format) << format.mantissa_bits;
  if (format.saturates) return exponent | ((std::uint64_t{1} << format.mantissa_bits) - 1);
  return exponent | std::uint64_t{1} << (format.mantissa_bits - 1);
}

Format part_of(const Format& complex) {
  Format part = complex;
  part.family = Family::kFloat;
  part.bytes = complex.bytes / 2;
  return part;
}

bool is_min(ReduceOp op) {
  return op == ReduceOp::kMin;
}

// Bitwise operations, by their numbers in the C ABI.
bool is_bitwise(ReduceOp op) {
  return static_cast<int>(op) >= 6 && static_cast<int>(op) <= 8;
}
__int128 bitwise(ReduceOp op, __int128 a, __int128 b) {
  switch (static_cast<int>(op)) {
    case 6:
      return a & b;
    case 7:
      return a | b;
    default:
      return a ^ b;
  }
}

// Multiplies in unsigned arithmetic, because signed overflow is undefined.
__int128 times(__int128 a, __int128 b) {
  return static_cast<__int128>(static_cast<unsigned __int128>(a) * static_cast<unsigned __int128>(b));
}

}  // namespace

Format format_of(DType dtype) {
  switch (static_cast<int>(dtype)) {  // the numbers of the C ABI
    case 0:
      return {Family::kInteger, 1, false};
    case 1:
      return {Family::kInteger, 1, true};
    case 2:
      return {Family::kInteger, 2, false};
    case 3:
      return {Family::kInteger, 2, true};
    case 4:
      return {Family::kInteger, 4, true};
    case 5:
      return {Family::kInteger, 8, true};
    case 6:
      return {Family::kFloat, 2, true, 5, 10};
    case 7:
      return {Family::kFloat, 4, true, 8, 23};
    case 8:
      return {Family::kFloat, 8, true, 11, 52};
    case 9:
      return {Family::kBool, 1, false};
    case 10:
      return {Family::kFloat, 2, true, 8, 7};
    case 11:
      return {Family::kFloat, 1, true, 4, 3, true};
    case 12:
      return {Family::kFloat, 1, true, 5, 2};
    case 13:
      return {Family::kInteger, 4, false};
    case 14:
      return {Family::kInteger, 8, false};
    case 15:
      return {Family::kComplex, 8, true, 8, 23};
    case 16:
      return {Family::kComplex, 16, true, 11, 52};
    default:
      HORO_CHECK(!"an element type of the C ABI");
      return {};
  }
}

double decode_float(std::uint64_t bits, const Format& format) {
  const int m = format.mantissa_bits;
  const std::uint64_t mantissa = bits & ((std::uint64_t{1} << m) - 1);
  const std::uint64_t exponent = bits >> m & top_exponent(format);
  const double sign = (bits >> (m + format.exponent_bits) & 1) != 0 ? -1.0 : 1.0;
  const double fraction = std::ldexp(static_cast<double>(mantissa), -m);
  if (exponent == 0) return sign * std::ldexp(fraction, 1 - bias_of(format));
  if (exponent == top_exponent(format)) {
    if (format.saturates && mantissa == (std::uint64_t{1} << m) - 1) return std::numeric_limits<double>::quiet_NaN();
    if (!format.saturates && mantissa != 0) return std::numeric_limits<double>::quiet_NaN();
    if (!format.saturates) return sign * std::numeric_limits<double>::infinity();
  }
  return sign * std::ldexp(1.0 + fraction, static_cast<int>(exponent) - bias_of(format));
}

std::uint64_t encode_float(double value, const Format& format) {
  if (std::isnan(value)) return quiet_nan(format);
  const int m = format.mantissa_bits, least = 1 - bias_of(format);
  const std::uint64_t sign = std::signbit(value) ? std::uint64_t{1} << (m + format.exponent_bits) : 0;
  double size = std::abs(value);
  const double most = greatest(format);
  if (std::isfinite(size) && size > 0) {
    int exponent = 0;
    std::frexp(size, &exponent);  // size = [0.5, 1) * 2^exponent
    const int last = std::max(exponent - 1, least) - m;
    // std::nearbyint rounds ties to even. Scaling by powers of two is exact here, except for doubles themselves.
    if (m < 52) size = std::ldexp(std::nearbyint(std::ldexp(size, -last)), last);
  }
  if (size > most) {
    if (!format.saturates) return sign | top_exponent(format) << m;
    size = most;
  }
  if (size == 0) return sign;
  int exponent = 0;
  std::frexp(size, &exponent);
  const int power = std::max(exponent - 1, least);
  // The fields are added, because the leading bit of a normal number adds one to the exponent field.
  const auto digits = static_cast<std::uint64_t>(std::ldexp(size, m - power));
  return sign | (digits + (static_cast<std::uint64_t>(power - least) << m));
}

Arithmetic::Arithmetic(DType dtype, ReduceOp op, const Factors& factors)
    : op_(op),
      factors_(factors),
      format_(format_of(dtype)),
      narrow_((format_.family == Family::kFloat && format_.bytes <= 4) ||
              (format_.family == Family::kComplex && format_.bytes == 8)) {}

__int128 Arithmetic::wrap(__int128 value) const {
  const int bits = 8 * format_.bytes;
  const unsigned __int128 modulus = static_cast<unsigned __int128>(1) << bits;
  const unsigned __int128 rest = static_cast<unsigned __int128>(value) & (modulus - 1);
  const bool is_negative = format_.is_signed && (rest >> (bits - 1)) != 0;
  return is_negative ? static_cast<__int128>(rest) - static_cast<__int128>(modulus) : static_cast<__int128>(rest);
}

__int128 Arithmetic::within(__int128 whole) const {
  const int bits = 8 * format_.bytes - (format_.is_signed ? 1 : 0);
  const __int128 most = (static_cast<__int128>(1) << bits) - 1;
  return std::clamp(whole, format_.is_signed ? -most - 1 : 0, most);
}

__int128 Arithmetic::saturate(double value) const {
  const int bits = 8 * format_.bytes - (format_.is_signed ? 1 : 0);
  const __int128 most = (static_cast<__int128>(1) << bits) - 1;
  const __int128 least = format_.is_signed ? -most - 1 : 0;
  if (std::isnan(value)) return 0;
  if (value >= std::ldexp(1.0, bits)) return most;
  if (value <= static_cast<double>(least)) return least;
  return static_cast<__int128>(value);
}

// A term of an average: the accumulator has room for it beyond the elements.
__int128 Arithmetic::contribution(double value) const {
  const double most = std::ldexp(1.0, format_.bytes == 8 ? 96 : 32);
  return std::isnan(value) ? 0 : static_cast<__int128>(std::clamp(value, -most, most));
}

__int128 Arithmetic::finished_whole(__int128 whole) const {
  const bool averages = op_ == ReduceOp::kAverage && factors_.divisor != 1;
  if (factors_.postscale == 1 && averages) whole /= static_cast<__int128>(factors_.divisor);
  if (factors_.postscale == 1) return op_ == ReduceOp::kAverage ? within(whole) : whole;
  return saturate(factors_.postscale * (static_cast<double>(whole) / factors_.divisor));
}

Value Arithmetic::load(const std::byte* element) const {
  const double prescale = narrow(factors_.prescale);
  const auto scaled = [&](double value) { return factors_.prescale == 1 ? value : narrow(prescale * value); };
  const std::uint64_t low = load_bits(element, std::min(format_.bytes, 8));
  switch (format_.family) {
    case Family::kBool:
      return {low != 0 ? 1 : 0};
    case Family::kInteger: {
      const __int128 whole = wrap(static_cast<__int128>(low));
      if (factors_.prescale == 1) return {whole};
      const double value = factors_.prescale * static_cast<double>(whole);
      return {op_ == ReduceOp::kAverage ? contribution(value) : saturate(value)};
    }
    case Family::kFloat:
      return {0, scaled(decode_float(low, format_))};
    case Family::kComplex:
      break;
  }
  const Format part = part_of(format_);
  return {0, scaled(decode_float(load_bits(element, part.bytes), part)),
          scaled(decode_float(load_bits(element + part.bytes, part.bytes), part))};
}

// NaNs propagate; -0 is less than +0.
double Arithmetic::join_real(double left, double right) const {
  if (op_ == ReduceOp::kSum || op_ == ReduceOp::kAverage) return narrow(left + right);
  if (op_ == ReduceOp::kProduct) return narrow(left * right);
  if (std::isnan(left) || std::isnan(right)) return std::numeric_limits<double>::quiet_NaN();
  const bool left_is_less = left < right || (left == right && std::signbit(left));
  return left_is_less == is_min(op_) ? left : right;
}

Value Arithmetic::join(const Value& left, const Value& right) const {
  const bool adds = op_ == ReduceOp::kSum || op_ == ReduceOp::kAverage;
  const __int128 a = left.whole, b = right.whole;
  switch (format_.family) {
    case Family::kBool:
      if (is_bitwise(op_)) return {bitwise(op_, a, b)};
      return {adds || op_ == ReduceOp::kMax ? a | b : a & b};
    case Family::kInteger:
      if (is_bitwise(op_)) return {wrap(bitwise(op_, a, b))};
      if (op_ == ReduceOp::kAverage) return {a + b};
      if (adds) return {wrap(a + b)};
      if (op_ == ReduceOp::kProduct) return {wrap(times(a, b))};
      return {is_min(op_) ? std::min(a, b) : std::max(a, b)};
    case Family::kFloat:
      return {0, join_real(left.re, right.re)};
    case Family::kComplex:
      break;
  }
  if (adds) return {0, narrow(left.re + right.re), narrow(left.im + right.im)};
  return {0, narrow(narrow(left.re * right.re) - narrow(left.im * right.im)),
          narrow(narrow(left.re * right.im) + narrow(left.im * right.re))};
}

void Arithmetic::store(const Value& value, std::byte* element) const {
  const bool is_plain = factors_.divisor == 1 && factors_.postscale == 1;
  const auto finish = [&](double v) {
    return is_plain ? v : narrow(narrow(factors_.postscale) * narrow(v / narrow(factors_.divisor)));
  };
  switch (format_.family) {
    case Family::kBool:
      return store_bits(static_cast<std::uint64_t>(value.whole), element, 1);
    case Family::kInteger: {
      return store_bits(static_cast<std::uint64_t>(finished_whole(value.whole)), element, format_.bytes);
    }
    case Family::kFloat:
      return store_bits(encode_float(finish(value.re), format_), element, format_.bytes);
    case Family::kComplex:
      break;
  }
  const Format part = part_of(format_);
  store_bits(encode_float(finish(value.re), part), element, part.bytes);
  store_bits(encode_float(finish(value.im), part), element + part.bytes, part.bytes);
}

bool Arithmetic::is_exact_in_any_order() const {
  const bool rounds = op_ == ReduceOp::kSum || op_ == ReduceOp::kAverage || op_ == ReduceOp::kProduct;
  return !rounds || format_.family == Family::kInteger || format_.family == Family::kBool;
}

// n - 1 roundings, each by at most unit() times the partial sum, which is at most the sum of all magnitudes.
long double Arithmetic::slack(const std::vector<double>& terms) const {
  long double sizes = 0;
  for (const double term : terms) sizes += std::abs(static_cast<long double>(term));
  return sizes * static_cast<long double>(unit()) * static_cast<long double>(terms.size()) * 1.01L;
}

double Arithmetic::finished(long double sum) const {
  return static_cast<double>(static_cast<long double>(narrow(factors_.postscale)) *
                             (sum / static_cast<long double>(narrow(factors_.divisor))));
}

double Arithmetic::rounded(double value) const {
  const Format format = format_.family == Family::kComplex ? part_of(format_) : format_;
  return decode_float(encode_float(value, format), format);
}

const char* name_of(Flavour flavour) {
  return flavour == Flavour::kSmall ? "small" : flavour == Flavour::kWide ? "wide" : "wild";
}

void draw_element(std::byte* element, DType dtype, Flavour flavour, std::mt19937_64& random) {
  const Format format = format_of(dtype);
  const std::uint64_t any = random();
  const bool is_float = format.family == Family::kFloat || format.family == Family::kComplex;
  if (format.family == Family::kBool) return store_bits(flavour == Flavour::kWild ? any % 4 : any % 2, element, 1);
  if (flavour == Flavour::kWild || (flavour == Flavour::kWide && !is_float)) {
    store_bits(any, element, std::min(8, format.bytes));
    if (format.bytes == 16) store_bits(random(), element + 8, 8);
    return;
  }
  if (!is_float) return store_bits(any % 4, element, format.bytes);
  const Format part = format.family == Family::kComplex ? part_of(format) : format;
  const int reach = part.exponent_bits <= 4 ? 3 : part.exponent_bits == 5 ? 6 : 12;
  for (int at = 0; at < format.bytes; at += part.bytes) {
    const double whole = static_cast<double>(random() % 7) - 3;
    const double fraction = static_cast<double>(random() % 4001) / 2000 - 1;
    const double wide = std::ldexp(fraction, static_cast<int>(random() % static_cast<unsigned>(2 * reach)) - reach);
    store_bits(encode_float(flavour == Flavour::kSmall ? whole : wide, part), element + at, part.bytes);
  }
}

}  // namespace horo::proof
