// Every operation on every type against slow arithmetic: wide integers, and short floats by their definition.

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>
#include <random>
#include <span>

#include "ring/reduce/half.h"
#include "ring/reduce/kernels.h"
#include "ring/reduce/reduce.h"
#include "tests/ring/reduce/float_formats.h"
#include "tests/ring/reduce/reduce_inputs.h"

namespace horo {
namespace {

using test::reduce;

__extension__ using Wide = __int128;

// The lower bits of the value.
template <class Int>
Int wrapped(Wide value) {
  return static_cast<Int>(static_cast<std::make_unsigned_t<Int>>(value));
}

template <class Int>
Int slow_join(ReduceOp op, Int a, Int b) {
  switch (op) {
    case ReduceOp::kMin:
      return std::min(a, b);
    case ReduceOp::kMax:
      return std::max(a, b);
    case ReduceOp::kProduct:
      return wrapped<Int>(static_cast<Wide>(static_cast<unsigned __int128>(a) * static_cast<unsigned __int128>(b)));
    case ReduceOp::kBitAnd:
      return static_cast<Int>(a & b);
    case ReduceOp::kBitOr:
      return static_cast<Int>(a | b);
    case ReduceOp::kBitXor:
      return static_cast<Int>(a ^ b);
    default:
      return wrapped<Int>(Wide{a} + Wide{b});
  }
}

// Truncates towards zero and saturates.
template <class Int>
Int truncated(double value) {
  if (value >= std::ldexp(1.0, std::numeric_limits<Int>::digits)) return std::numeric_limits<Int>::max();
  if (value <= static_cast<double>(std::numeric_limits<Int>::min())) return std::numeric_limits<Int>::min();
  return static_cast<Int>(std::trunc(value));
}

constexpr ReduceOp kOps[] = {ReduceOp::kAverage, ReduceOp::kSum,    ReduceOp::kMin,   ReduceOp::kMax,
                             ReduceOp::kProduct, ReduceOp::kBitAnd, ReduceOp::kBitOr, ReduceOp::kBitXor};

// prescale, the sum in 128 bits, the division of integers; a factor in float64.
template <class Int>
Int slow_average(const std::vector<std::vector<Int>>& inputs, std::size_t i, const Scaling& scaling) {
  Wide sum = 0;
  for (const auto& input : inputs) {
    const double scaled = std::trunc(scaling.prescale * static_cast<double>(input[i]));
    sum += scaling.prescale == 1 ? Wide{input[i]} : static_cast<Wide>(scaled);
  }
  if (scaling.postscale == 1) return static_cast<Int>(sum / static_cast<Wide>(scaling.divisor));
  return truncated<Int>(scaling.postscale * (static_cast<double>(sum) / scaling.divisor));
}

template <class Int>
void expect_integers(DType dtype) {
  using Limits = std::numeric_limits<Int>;
  std::mt19937_64 random(static_cast<std::uint64_t>(dtype));
  std::vector<std::vector<Int>> inputs(3, {0, 1, Limits::max(), Limits::min(), static_cast<Int>(-1)});
  for (auto& input : inputs) {
    std::shuffle(input.begin(), input.end(), random);
    for (int i = 0; i < 3'000; ++i) input.push_back(static_cast<Int>(random() >> random() % 64));
  }
  for (const ReduceOp op : kOps) {
    const auto out = reduce(dtype, op, inputs, {1, 1, 3});
    const auto scaled = reduce(dtype, op, inputs, {0.5, 3, 3});
    for (std::size_t i = 0; i < out.size(); ++i) {
      const auto tree = [&](auto leaf) { return slow_join(op, slow_join(op, leaf(0), leaf(1)), leaf(2)); };
      if (op == ReduceOp::kAverage) {
        ASSERT_EQ(out[i], slow_average(inputs, i, {1, 1, 3})) << name_of(dtype) << " " << i;
        ASSERT_EQ(scaled[i], slow_average(inputs, i, {0.5, 3, 3})) << name_of(dtype) << " " << i;
        continue;
      }
      const Int plain = tree([&](std::size_t k) { return inputs[k][i]; });
      ASSERT_EQ(out[i], plain) << name_of(dtype) << " " << name_of(op) << " " << i;
      const Int half = tree([&](std::size_t k) { return truncated<Int>(0.5 * static_cast<double>(inputs[k][i])); });
      ASSERT_EQ(scaled[i], truncated<Int>(3 * static_cast<double>(half))) << name_of(dtype);
    }
  }
}

TEST(Arithmetic, IntegersWrapAndScaleThroughFloat64) {
  expect_integers<std::uint8_t>(DType::kUint8);
  expect_integers<std::int8_t>(DType::kInt8);
  expect_integers<std::uint16_t>(DType::kUint16);
  expect_integers<std::int16_t>(DType::kInt16);
  expect_integers<std::uint32_t>(DType::kUint32);
  expect_integers<std::int32_t>(DType::kInt32);
  expect_integers<std::uint64_t>(DType::kUint64);
  expect_integers<std::int64_t>(DType::kInt64);
}

// The sum does not fit into the elements, and the average does; nothing is lost above 2^53.
template <class Int>
void expect_averages_of_extremes(DType dtype) {
  using Limits = std::numeric_limits<Int>;
  for (const Int extreme : {Limits::max(), Limits::min()}) {
    for (const std::size_t ranks : {1, 2, 3, 9, 300}) {
      const std::vector<std::vector<Int>> same(ranks, {extreme});
      const double n = static_cast<double>(ranks);
      EXPECT_EQ(reduce(dtype, ReduceOp::kAverage, same, {1, 1, n})[0], extreme) << name_of(dtype) << " " << ranks;
      EXPECT_EQ(reduce(dtype, ReduceOp::kAverage, same, {1, 1e9, n})[0], extreme) << name_of(dtype) << " " << ranks;
    }
  }
}

TEST(Arithmetic, AveragesOfIntegersNeverWrap) {
  expect_averages_of_extremes<std::uint8_t>(DType::kUint8);
  expect_averages_of_extremes<std::int8_t>(DType::kInt8);
  expect_averages_of_extremes<std::uint16_t>(DType::kUint16);
  expect_averages_of_extremes<std::int16_t>(DType::kInt16);
  expect_averages_of_extremes<std::uint32_t>(DType::kUint32);
  expect_averages_of_extremes<std::int32_t>(DType::kInt32);
  expect_averages_of_extremes<std::uint64_t>(DType::kUint64);
  expect_averages_of_extremes<std::int64_t>(DType::kInt64);
}

TEST(Arithmetic, AveragesOfLargeIntegersAreExact) {
  const std::int64_t odd = (1ll << 53) + 1;
  EXPECT_EQ(reduce<std::int64_t>(DType::kInt64, ReduceOp::kSum, {{odd}, {0}})[0], odd);
  EXPECT_EQ(reduce<std::int64_t>(DType::kInt64, ReduceOp::kAverage, {{odd}, {odd}}, {1, 1, 2})[0], odd);
  EXPECT_EQ(reduce<std::int64_t>(DType::kInt64, ReduceOp::kAverage, {{-7}, {-4}}, {1, 1, 2})[0], -5);
  EXPECT_EQ(reduce<std::uint64_t>(DType::kUint64, ReduceOp::kAverage, {{UINT64_MAX}, {0}}, {1, 1, 1})[0], UINT64_MAX);
  EXPECT_EQ(reduce<std::uint64_t>(DType::kUint64, ReduceOp::kAverage, {{UINT64_MAX}, {0}}, {1, 1, 2})[0],
            UINT64_MAX / 2);
}

// What a factor makes of one contribution need not fit into the elements either.
TEST(Arithmetic, ScaledContributionsOfAnAverageAreWide) {
  const std::vector<std::vector<std::uint8_t>> inputs{{200}, {100}};
  EXPECT_EQ(reduce(DType::kUint8, ReduceOp::kAverage, inputs, {2, 0.5, 2})[0], 150);
  EXPECT_EQ(reduce(DType::kUint8, ReduceOp::kAverage, inputs, {1e300, 1, 2})[0], 255);
  EXPECT_EQ(reduce(DType::kUint8, ReduceOp::kAverage, inputs, {-2, 1, 2})[0], 0);
  EXPECT_EQ(reduce(DType::kUint8, ReduceOp::kAverage, inputs, {2, 0, 2})[0], 0);
}

TEST(Arithmetic, BoolsSupportBitwiseOperations) {
  using Bytes = std::vector<std::vector<std::uint8_t>>;
  const Bytes inputs{{0, 0, 2, 2}, {0, 9, 0, 1}};
  EXPECT_EQ(reduce(DType::kBool, ReduceOp::kBitAnd, inputs), (std::vector<std::uint8_t>{0, 0, 0, 1}));
  EXPECT_EQ(reduce(DType::kBool, ReduceOp::kBitOr, inputs), (std::vector<std::uint8_t>{0, 1, 1, 1}));
  EXPECT_EQ(reduce(DType::kBool, ReduceOp::kBitXor, inputs), (std::vector<std::uint8_t>{0, 1, 1, 0}));
}

float slow_join(ReduceOp op, float a, float b) {
  if (a != a || b != b) return std::numeric_limits<float>::quiet_NaN();
  const bool first = a != b ? a < b : std::signbit(a);  // -0 is less than 0
  if (op == ReduceOp::kMin) return first ? a : b;
  if (op == ReduceOp::kMax) return first ? b : a;
  return op == ReduceOp::kProduct ? a * b : a + b;
}

template <class Bits>
void expect_short_floats(const FloatFormat& format) {
  std::mt19937_64 random(static_cast<std::uint64_t>(format.dtype));
  std::vector<std::vector<Bits>> inputs(3, std::vector<Bits>(5'000));
  for (auto& input : inputs) {
    for (Bits& bits : input) bits = static_cast<Bits>(random());  // with all special values
  }
  for (const ReduceOp op : std::span(kOps).first(5)) {
    const Scaling scaling{0.3, 1.7, 3};
    const auto out = reduce(format.dtype, op, inputs, scaling);
    for (std::size_t i = 0; i < out.size(); ++i) {
      const auto leaf = [&](std::size_t k) { return 0.3f * static_cast<float>(meaning(format, inputs[k][i])); };
      const float tree = slow_join(op, slow_join(op, leaf(0), leaf(1)), leaf(2));
      const double expected = nearest(format, 1.7f * (tree / (op == ReduceOp::kAverage ? 3.f : 1.f)));
      const double got = meaning(format, out[i]);
      ASSERT_TRUE(got == expected || (got != got && expected != expected))
          << name_of(format.dtype) << " " << name_of(op) << ": " << got << ", expected " << expected;
      ASSERT_TRUE(expected != expected || std::signbit(got) == std::signbit(expected));
    }
  }
}

TEST(Arithmetic, ShortFloatsAreReducedInFloat32AndRoundedOnce) {
  expect_short_floats<std::uint16_t>(kFloatFormats[0]);
  expect_short_floats<std::uint16_t>(kFloatFormats[1]);
  expect_short_floats<std::uint8_t>(kFloatFormats[2]);
  expect_short_floats<std::uint8_t>(kFloatFormats[3]);
}

TEST(Arithmetic, EightBitFloatsSaturateOrBecomeInfinite) {
  using Bytes = std::vector<std::vector<std::uint8_t>>;
  EXPECT_EQ(reduce(DType::kFloat8E4m3, ReduceOp::kSum, Bytes{{0x7e}, {0x7e}})[0], 0x7e);
  EXPECT_EQ(reduce(DType::kFloat8E4m3, ReduceOp::kSum, Bytes{{0xfe}, {0xfe}})[0], 0xfe);
  EXPECT_EQ(reduce(DType::kFloat8E5m2, ReduceOp::kSum, Bytes{{0x7b}, {0x7b}})[0], 0x7c);
  EXPECT_EQ(reduce(DType::kFloat8E5m2, ReduceOp::kSum, Bytes{{0x7c}, {0xfc}})[0], 0x7e) << "NaN";
  EXPECT_EQ(reduce(DType::kFloat8E4m3, ReduceOp::kMax, Bytes{{0xff}, {0x01}})[0], 0x7f) << "NaN";
}

template <class Float>
struct Pair {
  Float real, imaginary;
  bool operator==(const Pair&) const = default;
};

template <class Float>
void expect_complex(DType dtype) {
  using C = Pair<Float>;
  using Vectors = std::vector<std::vector<C>>;
  const Vectors inputs{{{1, 2}, {Float(0.1), -3}}, {{3, -5}, {Float(0.7), 11}}};
  EXPECT_EQ(reduce(dtype, ReduceOp::kSum, inputs)[0], (C{4, -3}));
  EXPECT_EQ(reduce(dtype, ReduceOp::kAverage, inputs, {1, 1, 2})[0], (C{2, Float(-1.5)}));
  EXPECT_EQ(reduce(dtype, ReduceOp::kSum, inputs, {2, Float(0.5), 1})[0], (C{4, -3}));
  EXPECT_EQ(reduce(dtype, ReduceOp::kProduct, inputs)[0], (C{13, 1}));
  const Float a = Float(0.1), b = -3, c = Float(0.7), d = 11;
  EXPECT_EQ(reduce(dtype, ReduceOp::kProduct, inputs)[1], (C{a * c - b * d, a * d + b * c}));
  const Float infinity = std::numeric_limits<Float>::infinity();
  const C out = reduce(dtype, ReduceOp::kProduct, Vectors{{{infinity, 0}}, {{1, 0}}})[0];
  EXPECT_EQ(out.real, infinity);
  EXPECT_TRUE(std::isnan(out.imaginary)) << "infinity times 0";
  EXPECT_FALSE(std::signbit(out.imaginary)) << "the canonical NaN";
}

TEST(Arithmetic, ComplexNumbersAreMultipliedByTheTextbookFormula) {
  expect_complex<float>(DType::kComplex64);
  expect_complex<double>(DType::kComplex128);
}

class EveryType : public testing::TestWithParam<int> {
 protected:
  static DType dtype() { return *dtype_from(GetParam()); }
  // Random bytes contain NaNs, infinities, subnormal numbers and the extremes of every type.
  static std::vector<std::byte> noise(std::size_t bytes, std::uint64_t seed) {
    std::mt19937_64 random(seed);
    std::vector<std::byte> noise(bytes);
    for (auto& byte : noise) byte = static_cast<std::byte>(random());
    return noise;
  }
  template <class F>
  static void each_op(F f) {
    for (const ReduceOp op : kOps) {
      if (supports(dtype(), op)) f(op);
    }
  }
};

INSTANTIATE_TEST_SUITE_P(Types, EveryType, testing::Range(0, 17),
                         [](const auto& info) { return std::string(name_of(*dtype_from(info.param))); });

// Contributors whose trees are regular, contain regular trees, or neither.
const std::vector<std::int64_t> kContributors[] = {{0},
                                                   {0, 1},
                                                   {0, 1, 2},
                                                   {0, 2, 3},
                                                   {0, 1, 2, 3},
                                                   {0, 1, 2, 5, 6},
                                                   {1, 2, 3, 4, 5, 6, 7},
                                                   {0, 1, 2, 3, 4, 5, 6, 7},
                                                   {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10}};

TEST_P(EveryType, HasTheSameBitsWithEveryInstructionSet) {
  std::vector<std::byte> stack(8 * kKernelBlock * 16);
  for (const auto& ids : kContributors) {
    const auto tree = canonical_tree(ids);
    for (const std::size_t count : {1u, 2u, 6u, 7u, 33u, 1'023u, 1'024u, 1'500u}) {
      const std::size_t offset = (ids.size() + count) % 7;
      const auto memory = noise(ids.size() * 16 * count + offset, count + offset);
      std::vector<TreeInput> inputs;
      for (std::size_t i = 0; i < ids.size(); ++i) inputs.push_back({memory.data() + offset + i * 16 * count});
      each_op([&](ReduceOp op) {
        for (const Scaling& scaling : {Scaling{}, Scaling{1.0, 1.7, 3}, Scaling{0.3, 1.7, 3}}) {
          const auto run = [&](const Kernels& kernels, int regular) {
            std::vector<std::byte> out(16 * count + offset);
            std::byte* const to = out.data() + offset;
            kernels.reduce_tree(
                dtype(), op,
                {tree.data(), tree.size(), inputs.data(), &to, 1, count, scaling, false, regular, stack.data()});
            return out;
          };
          const auto expected = run(scalar_kernels(), 0);
          for (const Kernels* kernels : all_kernels()) {
            ASSERT_EQ(run(*kernels, regular_inputs(tree)), expected)
                << kernels->name << " " << name_of(op) << " " << ids.size() << " inputs, " << count << " at " << offset;
          }
        }
      });
    }
  }
}

TEST_P(EveryType, MayBeSummedIntoAnyOfItsInputs) {
  std::vector<std::byte> stack(8 * kKernelBlock * 16);
  for (std::size_t round = 0; round < 2 * std::size(kContributors); ++round) {
    const auto& ids = kContributors[round / 2];
    const std::size_t count = round % 2 == 0 ? 5 : 1'500, bytes = count * size_of(dtype());
    const auto tree = canonical_tree(ids);
    const auto run = [&](const Kernels& kernels, std::size_t place) {
      auto memory = noise((ids.size() + 1) * bytes, 3);
      std::vector<TreeInput> inputs;
      for (std::size_t i = 0; i < ids.size(); ++i) inputs.push_back({memory.data() + i * bytes});
      std::byte* out = memory.data() + place * bytes;
      kernels.reduce_tree(
          dtype(), ReduceOp::kSum,
          {tree.data(), tree.size(), inputs.data(), &out, 1, count, {}, false, regular_inputs(tree), stack.data()});
      return std::vector<std::byte>(out, out + bytes);
    };
    const auto apart = run(scalar_kernels(), ids.size());
    for (const Kernels* kernels : all_kernels()) {
      for (std::size_t place = 0; place < ids.size(); ++place) ASSERT_EQ(run(*kernels, place), apart) << kernels->name;
    }
  }
}

// All float16 values plus some special ones, because the conversions of the processor might differ for them.
TEST(Arithmetic, EveryFloat16SumHasTheSameBitsWithEveryInstructionSet) {
  constexpr std::size_t kCount = 1 << 16;
  std::vector<std::uint16_t> all(kCount), other(kCount);
  std::iota(all.begin(), all.end(), std::uint16_t{0});
  const auto tree = canonical_tree(std::vector<std::int64_t>{0, 1});
  for (const std::uint16_t value : {0x0000, 0x8000, 0x0001, 0x83ff, 0x0400, 0x7bff, 0x7c00, 0xfc00, 0x7d01, 0x3555}) {
    std::fill(other.begin(), other.end(), value);
    const TreeInput inputs[] = {{reinterpret_cast<const std::byte*>(all.data())},
                                {reinterpret_cast<const std::byte*>(other.data())}};
    std::vector<std::uint16_t> expected(kCount), out(kCount);
    for (std::size_t i = 0; i < kCount; ++i) {
      expected[i] = float_to_float16(float16_to_float(all[i]) + float16_to_float(value));
    }
    for (const Kernels* kernels : all_kernels()) {
      std::vector<std::byte> stack(2 * kKernelBlock * 16);
      std::byte* const to = reinterpret_cast<std::byte*>(out.data());
      kernels->reduce_tree(DType::kFloat16, ReduceOp::kSum,
                           {tree.data(), tree.size(), inputs, &to, 1, kCount, {}, false, 2, stack.data()});
      ASSERT_EQ(out, expected) << kernels->name << " " << value;
    }
  }
}

TEST(Kernels, AreChosenByNameAndTheBestOnesByDefault) {
  for (const Kernels* kernels : all_kernels()) EXPECT_EQ(&kernels_for(kernels->name), kernels);
  EXPECT_EQ(&kernels_for("auto"), all_kernels().back());
}

TEST(Kernels, ThatTheProcessorDoesNotSupportAreRefusedByName) {
  try {
    kernels_for("mmx");
    FAIL() << "no error";
  } catch (const std::invalid_argument& error) {
    EXPECT_NE(std::string(error.what()).find("HORO_KERNELS=\"mmx\""), std::string::npos) << error.what();
    EXPECT_NE(std::string(error.what()).find("scalar"), std::string::npos) << error.what();
  }
}

// A reduction in several steps with partial results gives the same bits as in one step.
TEST_P(EveryType, PartialResultsGiveTheBitsOfOneReduction) {
  constexpr std::size_t kCount = 2'000;
  const std::size_t bytes = kCount * size_of(dtype());
  const auto memory = noise(3 * bytes, 9);
  const auto input = [&](std::size_t i) { return TreeInput{memory.data() + i * bytes}; };
  const std::vector<std::int64_t> three{0, 1, 2}, two{0, 1}, one{0};
  each_op([&](ReduceOp op) {
    std::vector<std::byte> whole(bytes), out(bytes), sum(kCount * accumulator_bytes(dtype(), op));
    const Scaling scaling{0.5, 3, 2};
    const auto run = [&](const auto& ids, std::vector<TreeInput> inputs, std::vector<std::byte>& to, bool to_partial) {
      reduce_tree({dtype(), op, scaling, to_partial}, canonical_tree(ids), inputs, to.data(), kCount);
    };
    run(three, {input(0), input(1), input(2)}, whole, false);
    run(two, {input(0), input(1)}, sum, true);
    run(two, {{sum.data(), true}, input(2)}, sum, true);
    run(one, {{sum.data(), true}}, out, false);
    ASSERT_EQ(out, whole) << name_of(op);
  });
}

TEST_P(EveryType, OneContributionIsUnchangedExceptForNaNs) {
  const std::size_t bytes = 3'000 * size_of(dtype());
  const auto memory = noise(bytes, 4);
  const TreeInput input{memory.data()};
  const std::vector<std::int64_t> ids{5};
  std::vector<std::byte> once(bytes), twice(bytes);
  reduce_tree({dtype(), ReduceOp::kSum, {}}, canonical_tree(ids), {&input, 1}, once.data(), 3'000);
  const TreeInput again{once.data()};
  reduce_tree({dtype(), ReduceOp::kProduct, {}}, canonical_tree(ids), {&again, 1}, twice.data(), 3'000);
  EXPECT_EQ(once, twice);
  EXPECT_TRUE(!is_integer(dtype()) || once == memory);
}

}  // namespace
}  // namespace horo
