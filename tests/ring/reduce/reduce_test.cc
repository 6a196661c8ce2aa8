// reduce_tree() and the canonical tree against slow implementations.

#include "ring/reduce/reduce.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <functional>
#include <limits>
#include <numeric>
#include <random>

#include "horo/base/say.h"
#include "ring/reduce/half.h"
#include "tests/ring/reduce/reduce_inputs.h"

namespace horo {
namespace {

using test::reduce;

// The binary trie by its definition: split at the highest bit, level by level, without empty halves.
std::string slow_tree(const std::vector<std::int64_t>& ids, int bit) {
  if (ids.size() == 1) return std::to_string(ids[0]);
  std::vector<std::int64_t> low, high;
  for (const std::int64_t id : ids) (id >> bit & 1 ? high : low).push_back(id);
  if (low.empty() || high.empty()) return slow_tree(ids, bit - 1);
  return say("(", slow_tree(low, bit - 1), " ", slow_tree(high, bit - 1), ")");
}

std::string run_tree(const std::vector<std::int64_t>& ids) {
  std::vector<std::string> stack;
  for (const TreeStep& step : canonical_tree(ids)) {
    if (step.input != TreeStep::kJoin) {
      stack.push_back(std::to_string(ids[static_cast<std::size_t>(step.input)]));
      continue;
    }
    const std::string right = stack.back();
    stack.pop_back();
    stack.back() = say("(", stack.back(), " ", right, ")");
  }
  return stack.size() == 1 ? stack[0] : "not one tree";
}

TEST(CanonicalTree, IsTheBinaryTrieOverTheIds) {
  std::mt19937_64 random(1);
  for (int round = 0; round < 2000; ++round) {
    std::vector<std::int64_t> ids;
    const int bits = 1 + round % 63;
    for (std::uint64_t i = 0; i < 1 + random() % 40; ++i)
      ids.push_back(static_cast<std::int64_t>(random() >> (64 - bits)));
    std::sort(ids.begin(), ids.end());
    ids.erase(std::unique(ids.begin(), ids.end()), ids.end());
    ASSERT_EQ(run_tree(ids), slow_tree(ids, 62));
  }
}

TEST(CanonicalTree, SplitsDenseIdsAtTheLargestPowerOfTwo) {
  EXPECT_EQ(run_tree({0, 1, 2, 3, 4, 5}), "(((0 1) (2 3)) (4 5))");
  EXPECT_EQ(run_tree({0, 1, 2}), "((0 1) 2)");
  EXPECT_EQ(run_tree({7}), "7");
  EXPECT_TRUE(canonical_tree({}).empty());
}

// An absent id does not change the order of the others.
TEST(CanonicalTree, AnAbsentIdIsSkipped) {
  EXPECT_EQ(run_tree({0, 2, 3, 5}), "((0 (2 3)) 5)");
}

// The formula, one element at a time, in the order of the tree, on doubles rounded to T after every step.
template <class T>
T slow_reduce(ReduceOp op, const std::vector<std::vector<T>>& inputs, std::size_t i, const Scaling& scaling) {
  std::vector<std::int64_t> ids(inputs.size());
  std::iota(ids.begin(), ids.end(), 0);
  std::vector<T> stack;
  for (const TreeStep& step : canonical_tree(ids)) {
    if (step.input != TreeStep::kJoin) {
      stack.push_back(static_cast<T>(scaling.prescale) * inputs[static_cast<std::size_t>(step.input)][i]);
      continue;
    }
    const T b = stack.back();
    stack.pop_back();
    T& a = stack.back();
    a = op == ReduceOp::kProduct ? a * b
        : op == ReduceOp::kMin   ? std::min(a, b)
        : op == ReduceOp::kMax   ? std::max(a, b)
                                 : a + b;
  }
  if (op == ReduceOp::kAverage) stack[0] /= static_cast<T>(scaling.divisor);
  return static_cast<T>(scaling.postscale) * stack[0];
}

template <class T>
void expect_formula(DType dtype) {
  std::mt19937_64 random(7);
  std::normal_distribution<T> normal;
  for (std::size_t inputs_count = 1; inputs_count <= 9; ++inputs_count) {
    std::vector<std::vector<T>> inputs(inputs_count, std::vector<T>(2500));
    for (auto& input : inputs) std::generate(input.begin(), input.end(), [&] { return normal(random) + T(0.01); });
    for (const ReduceOp op : {ReduceOp::kSum, ReduceOp::kAverage, ReduceOp::kMin, ReduceOp::kMax, ReduceOp::kProduct}) {
      for (const Scaling& scaling : {Scaling{}, Scaling{0.7, 1.3, 3}}) {
        const auto out = reduce(dtype, op, inputs, scaling);
        for (std::size_t i = 0; i < out.size(); ++i) ASSERT_EQ(out[i], slow_reduce(op, inputs, i, scaling)) << i;
      }
    }
  }
}

TEST(ReduceTree, FollowsTheFormulaBitForBit) {
  expect_formula<float>(DType::kFloat32);
  expect_formula<double>(DType::kFloat64);
}

TEST(ReduceTree, HalvesAreAddedInFloat32AndRoundedOnce) {
  // 1 + 2^-11 is a midpoint in float16: rounding twice loses the small terms, rounding once does not.
  const std::uint16_t one = float_to_float16(1.f), small = float_to_float16(0x1p-11f);
  const std::vector<std::vector<std::uint16_t>> inputs{{one}, {small}, {small}, {small}};
  EXPECT_EQ(reduce(DType::kFloat16, ReduceOp::kSum, inputs)[0], float_to_float16(1.f + 3 * 0x1p-11f));
}

TEST(ReduceTree, AResultMayReplaceAnInput) {
  std::vector<float> a(3000, 1.5f), b(3000, 2.f);
  const TreeInput inputs[] = {{reinterpret_cast<std::byte*>(a.data())}, {reinterpret_cast<std::byte*>(b.data())}};
  reduce_tree({}, canonical_tree(std::vector<std::int64_t>{0, 1}), inputs, reinterpret_cast<std::byte*>(b.data()),
              b.size());
  EXPECT_EQ(b, std::vector<float>(3000, 3.5f));
}

// One reducer prepares a sequence of reductions, some of them equal; each result is that of reduce_tree().
TEST(TreeReducer, PreparesAnyReductionAfterAnyOther) {
  const std::vector<TreeStep> tree = canonical_tree(std::vector<std::int64_t>{0, 1, 2});
  TreeReducer reducer(tree);
  std::mt19937 random(7);
  const auto pick = [&](auto... from) { return std::array{from...}[random() % sizeof...(from)]; };
  for (int round = 0; round < 2000; ++round) {
    Reduction reduction{pick(DType::kFloat32, DType::kInt32), pick(ReduceOp::kSum, ReduceOp::kAverage), {}};
    reduction.scaling = {pick(1.0, 1.0, 0.0, -0.0), pick(1.0, 1.0, 0.5), pick(1.0, 3.0)};
    const std::size_t count = pick(0, 2, 2, 2, 6, 7, 300);
    std::vector<std::vector<std::uint32_t>> values(3, std::vector<std::uint32_t>(count));
    const auto any = [&] { return static_cast<std::uint32_t>(0x3f800000 | random() % (1 << 20)); };
    for (auto& each : values) std::generate(each.begin(), each.end(), any);
    std::vector<TreeInput> inputs;
    for (const auto& each : values) inputs.push_back({reinterpret_cast<const std::byte*>(each.data())});
    std::vector<std::uint32_t> expected(count), one(count), other(count);
    reduce_tree(reduction, tree, inputs, reinterpret_cast<std::byte*>(expected.data()), count);
    std::byte* const outs[] = {reinterpret_cast<std::byte*>(one.data()), reinterpret_cast<std::byte*>(other.data())};
    const std::size_t out_count = pick(1, 1, 2);
    reducer.prepare(reduction, inputs, std::span(outs).first(out_count), count);
    reducer.run_prepared();
    ASSERT_EQ(one, expected) << "round " << round;
    ASSERT_TRUE(out_count == 1 || other == expected) << "round " << round;
  }
}

TEST(ReduceTree, WithoutContributorsTheOutputIsNotWritten) {
  float out = 3;
  reduce_tree({}, {}, {}, reinterpret_cast<std::byte*>(&out), 1);
  EXPECT_EQ(out, 3);
}

TEST(ReduceTree, IntegersWrap) {
  using Limits = std::numeric_limits<std::int32_t>;
  EXPECT_EQ(reduce<std::int32_t>(DType::kInt32, ReduceOp::kSum, {{Limits::max()}, {1}})[0], Limits::min());
  EXPECT_EQ(reduce<std::int8_t>(DType::kInt8, ReduceOp::kSum, {{127}, {127}})[0], -2);
  EXPECT_EQ(reduce<std::uint8_t>(DType::kUint8, ReduceOp::kProduct, {{16}, {17}})[0], 16);
  EXPECT_EQ(reduce<std::int64_t>(DType::kInt64, ReduceOp::kProduct, {{INT64_MAX}, {2}})[0], -2);
}

TEST(ReduceTree, IntegerAveragesTruncateAndSaturate) {
  EXPECT_EQ(reduce<std::int32_t>(DType::kInt32, ReduceOp::kAverage, {{-5}, {-2}}, {1, 1, 2})[0], -3);
  EXPECT_EQ(reduce<std::int8_t>(DType::kInt8, ReduceOp::kSum, {{100}, {1}}, {1, 3, 1})[0], 127);
  EXPECT_EQ(reduce<std::uint8_t>(DType::kUint8, ReduceOp::kSum, {{5}, {5}}, {1, -1, 1})[0], 0);
  EXPECT_EQ(reduce<std::int64_t>(DType::kInt64, ReduceOp::kSum, {{INT64_MAX}, {0}}, {1, 2, 1})[0], INT64_MAX);
  EXPECT_EQ(reduce<std::int64_t>(DType::kInt64, ReduceOp::kSum, {{INT64_MIN}, {0}}, {1, 2, 1})[0], INT64_MIN);
  EXPECT_EQ(reduce<std::int32_t>(DType::kInt32, ReduceOp::kSum, {{3}, {3}}, {0.5, 1, 1})[0], 2);
  EXPECT_EQ(reduce<std::int64_t>(DType::kInt64, ReduceOp::kSum, {{(1ll << 53) + 1}, {0}})[0], (1ll << 53) + 1);
}

TEST(ReduceTree, BoolsAreOrAndAnd) {
  using Bytes = std::vector<std::vector<std::uint8_t>>;
  EXPECT_EQ(reduce(DType::kBool, ReduceOp::kSum, Bytes{{0, 2, 0}, {0, 0, 1}}), (std::vector<std::uint8_t>{0, 1, 1}));
  EXPECT_EQ(reduce(DType::kBool, ReduceOp::kProduct, Bytes{{0, 2, 1}, {7, 0, 1}}),
            (std::vector<std::uint8_t>{0, 0, 1}));
  EXPECT_EQ(reduce(DType::kBool, ReduceOp::kMax, Bytes{{255}})[0], 1);
}

template <class T, class Bits>
void expect_canonical_nan(DType dtype, Bits nan_in, Bits canonical) {
  const T strange = std::bit_cast<T>(nan_in);
  for (const ReduceOp op : {ReduceOp::kSum, ReduceOp::kMin, ReduceOp::kMax, ReduceOp::kProduct}) {
    for (const auto& inputs : {std::vector<std::vector<T>>{{strange}, {T(1)}}, {{T(1)}, {strange}}, {{strange}}}) {
      EXPECT_EQ(std::bit_cast<Bits>(reduce(dtype, op, inputs)[0]), canonical) << static_cast<int>(op);
    }
  }
}

TEST(ReduceTree, NansArePropagatedAndCanonical) {
  expect_canonical_nan<float>(DType::kFloat32, 0xffc12345u, 0x7fc00000u);
  expect_canonical_nan<double>(DType::kFloat64, 0xfff8000000001234ull, 0x7ff8000000000000ull);
  const auto inf = std::numeric_limits<float>::infinity();
  EXPECT_EQ(std::bit_cast<std::uint32_t>(reduce<float>(DType::kFloat32, ReduceOp::kSum, {{inf}, {-inf}})[0]),
            0x7fc00000u);
}

TEST(ReduceTree, NegativeZeroIsLessThanZero) {
  for (const auto& inputs : {std::vector<std::vector<float>>{{0.f}, {-0.f}}, {{-0.f}, {0.f}}}) {
    EXPECT_TRUE(std::signbit(reduce(DType::kFloat32, ReduceOp::kMin, inputs)[0]));
    EXPECT_FALSE(std::signbit(reduce(DType::kFloat32, ReduceOp::kMax, inputs)[0]));
  }
}

}  // namespace
}  // namespace horo
