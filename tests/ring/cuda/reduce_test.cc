// CudaApi::reduce() against reduce_tree(), bit for bit.

#include "ring/reduce/reduce.h"

#include <gtest/gtest.h>

#include <array>
#include <bit>
#include <numeric>
#include <random>

#include "horo/base/say.h"
#include "tests/ring/cuda/card.h"

namespace horo {
namespace {

using Bytes = std::vector<std::byte>;

constexpr std::size_t kInputRoom = 16'384;
constexpr std::size_t kInputs = 32;

std::vector<DType> all_dtypes() {
  std::vector<DType> all;
  for (int number = 0; const auto dtype = dtype_from(number); ++number) all.push_back(*dtype);
  return all;
}

std::vector<ReduceOp> kernel_ops(DType dtype) {
  std::vector<ReduceOp> all;
  for (int number = 0; const auto op = reduce_op_from(number); ++number) {
    if (has_kernel(dtype, *op)) all.push_back(*op);
  }
  return all;
}

std::vector<std::int64_t> first_ids(std::size_t count) {
  std::vector<std::int64_t> ids(count);
  std::iota(ids.begin(), ids.end(), 0);
  return ids;
}

// Random bits. In an eighth of the elements all are alike but those of the highest two bytes, which have the sign and
// the exponent: zeros, infinities, subnormals and NaN of each format.
Bytes random_bits(DType dtype, std::size_t count, std::mt19937& random) {
  Bytes bytes(count * size_of(dtype));
  for (auto& byte : bytes) byte = static_cast<std::byte>(random());
  constexpr std::array kHigh = {0x00, 0x80, 0x7f, 0xff, 0x01, 0x7c, 0xfc, 0xf0};
  for (std::size_t at = 0; at + 16 <= bytes.size(); at += 8 * 16) {
    std::fill_n(&bytes[at], 16, random() % 2 == 0 ? std::byte{0} : std::byte{0xff});
    for (std::size_t i = 0; i < 16; ++i) {
      if (random() % 2 == 0) bytes[at + i] = static_cast<std::byte>(kHigh[random() % kHigh.size()]);
    }
  }
  return bytes;
}

struct Case {
  DType dtype;
  ReduceOp op = ReduceOp::kSum;
  std::vector<std::int64_t> ids;
  std::size_t count;
  Scaling scaling = {};
  bool is_in_place = false;
  int shift = 16;  // what offsets of memory are a multiple of
};

std::string words_of(const Case& one) {
  return say(name_of(one.dtype), " ", name_of(one.op), " of ", one.ids.size(), " inputs with ", one.count,
             " elements, factors ", one.scaling.prescale, " ", one.scaling.postscale, ", offsets of ", one.shift);
}

class Reductions : public test::OnEachTable {
 protected:
  // What the kernel writes, and what it leaves alone behind.
  void expect_bits_of_the_cpu(test::Card& card, const Case& one) {
    const std::vector<TreeStep> tree = canonical_tree(one.ids);
    const std::size_t bytes = one.count * size_of(one.dtype);
    std::vector<Bytes> values;
    std::vector<TreeInput> host;
    std::vector<const void*> device;
    for (std::size_t i = 0; i < one.ids.size(); ++i) {
      const std::size_t at = i * kInputRoom + offset(one.shift);
      values.push_back(random_bits(one.dtype, one.count, random_));
      card.write(at, values.back());
      host.push_back({values.back().data()});
      device.push_back(card.memory() + at);
    }
    const std::size_t last = one.ids.size() * kInputRoom + offset(one.shift);
    const std::size_t out =
        one.is_in_place ? static_cast<std::size_t>(static_cast<const std::byte*>(device[0]) - card.memory()) : last;
    card.write(out + bytes, Bytes(16, std::byte{0x5a}));
    Bytes expected(bytes + 16, std::byte{0x5a});
    reduce_tree({one.dtype, one.op, one.scaling}, tree, host, expected.data(), one.count);
    const DeviceReduction reduction{
        one.dtype,           one.op,    device.data(),        device.size(),         tree.data(),        tree.size(),
        card.memory() + out, one.count, one.scaling.prescale, one.scaling.postscale, one.scaling.divisor};
    ASSERT_EQ(api().reduce(&reduction, card.stream()), 0) << words_of(one);
    ASSERT_EQ(card.read(out, bytes + 16), expected) << words_of(one);
  }

  std::size_t offset(int shift) { return random_() % 8 * static_cast<std::size_t>(shift); }

  std::mt19937 random_{1};
};

TEST_P(Reductions, HaveTheBitsOfTheCpuForAllTypesAndOperations) {
  test::Card card(api(), (kInputs + 2) * kInputRoom);
  for (const DType dtype : all_dtypes()) {
    for (const ReduceOp op : kernel_ops(dtype)) {
      for (const std::size_t inputs : {1, 2, 3, 4, 5, 6, 7, 8, 9, 32}) {
        expect_bits_of_the_cpu(card, {dtype, op, first_ids(inputs), 1 + random_() % 300});
      }
    }
  }
}

TEST_P(Reductions, HaveTheBitsOfTheCpuWithFactors) {
  test::Card card(api(), (kInputs + 2) * kInputRoom);
  for (const DType dtype : all_dtypes()) {
    for (const ReduceOp op : kernel_ops(dtype)) {
      for (const Scaling& scaling : {Scaling{1, 1, 3}, Scaling{0.7, 1, 1}, Scaling{1, -1.3, 1}, Scaling{1e30, 0, 5}}) {
        expect_bits_of_the_cpu(card, {dtype, op, first_ids(3), 150, scaling});
      }
    }
  }
}

TEST_P(Reductions, TakeAnyAlignment) {
  test::Card card(api(), (kInputs + 2) * kInputRoom);
  for (const DType dtype : all_dtypes()) {
    for (const int shift : {1, 2, 4, 8}) {
      for (const std::size_t inputs : {1, 2, 4}) {
        expect_bits_of_the_cpu(card, {dtype, ReduceOp::kSum, first_ids(inputs), 1 + random_() % 99, {}, true, shift});
      }
    }
  }
}

// All pointers have the same distance to the next pack.
TEST_P(Reductions, TakePacksBehindTheFirstElements) {
  test::Card card(api(), 4 * kInputRoom);
  const std::vector<TreeStep> tree = canonical_tree(first_ids(2));
  for (std::size_t head = 1; head < 4; ++head) {
    const Bytes ones = Bytes(400, std::byte{0x3f});
    card.write(0, Bytes(kInputRoom, std::byte{0x5a}));
    card.write(4 * head, ones);
    const void* const inputs[] = {card.memory() + 4 * head, card.memory() + 4 * head};
    const DeviceReduction reduction{
        DType::kFloat32, ReduceOp::kMax, inputs, 2, tree.data(), 3, card.memory() + kInputRoom + 4 * head, 100};
    ASSERT_EQ(api().reduce(&reduction, card.stream()), 0);
    EXPECT_EQ(card.read(kInputRoom + 4 * head, 400), ones);
  }
}

TEST_P(Reductions, FollowTheTreeOfIrregularIds) {
  test::Card card(api(), (kInputs + 2) * kInputRoom);
  for (int round = 0; round < 60; ++round) {
    std::vector<std::int64_t> ids;
    while (ids.size() < 1 + static_cast<std::size_t>(round) % kInputs) ids.push_back(random_() % 8192);
    std::sort(ids.begin(), ids.end());
    ids.erase(std::unique(ids.begin(), ids.end()), ids.end());
    expect_bits_of_the_cpu(card, {DType::kFloat32, ReduceOp::kSum, ids, 65});
    expect_bits_of_the_cpu(card, {DType::kFloat16, ReduceOp::kAverage, ids, 65, {1, 1, 7}, true});
  }
}

TEST_P(Reductions, TakeAsManyInputsAsTheySay) {
  test::Card card(api(), (kMostReduceInputs + 2) * kInputRoom);
  expect_bits_of_the_cpu(card, {DType::kBFloat16, ReduceOp::kSum, first_ids(kMostReduceInputs), 129});
  expect_bits_of_the_cpu(card, {DType::kInt64, ReduceOp::kProduct, first_ids(kMostReduceInputs - 1), 77});
}

// Ids of which each splits off alone: 0, 1, 2, 4, 8 ... the right half is deep.
TEST_P(Reductions, TakeTreesAsDeepAsTheySay) {
  test::Card card(api(), (kInputs + 2) * kInputRoom);
  std::vector<std::int64_t> ids{0};
  for (int bit = 22; bit >= 0; --bit) ids.push_back(ids.back() | std::int64_t{1} << bit);
  ASSERT_EQ(ids.size(), kMostReduceLevels);
  expect_bits_of_the_cpu(card, {DType::kFloat64, ReduceOp::kSum, ids, 200});
  expect_bits_of_the_cpu(card, {DType::kBFloat16, ReduceOp::kSum, ids, 200});
}

TEST_P(Reductions, RunManyElements) {
  constexpr std::size_t kCount = 5'000'003;
  test::Card card(api(), 3 * 4 * kCount);
  const Bytes a = random_bits(DType::kInt32, kCount, random_), b = random_bits(DType::kInt32, kCount, random_);
  card.write(0, a);
  card.write(4 * kCount, b);
  const std::vector<TreeStep> tree = canonical_tree(first_ids(2));
  Bytes expected(4 * kCount);
  const TreeInput host[] = {{a.data()}, {b.data()}};
  reduce_tree({DType::kInt32, ReduceOp::kSum, {}}, tree, host, expected.data(), kCount);
  const void* const inputs[] = {card.memory(), card.memory() + 4 * kCount};
  const DeviceReduction reduction{
      DType::kInt32, ReduceOp::kSum, inputs, 2, tree.data(), tree.size(), card.memory() + 8 * kCount, kCount};
  ASSERT_EQ(api().reduce(&reduction, card.stream()), 0);
  EXPECT_TRUE(card.read(8 * kCount, 4 * kCount) == expected);
}

TEST_P(Reductions, RefuseWhatHasNoKernel) {
  test::Card card(api(), 64);
  std::vector<const void*> inputs(kMostReduceInputs + 1, card.memory());
  const auto error_of = [&](ReduceOp op, const std::vector<TreeStep>& tree) {
    const DeviceReduction reduction{DType::kInt32, op,          inputs.data(), inputs.size(),
                                    tree.data(),   tree.size(), card.memory(), 1};
    return api().reduce(&reduction, card.stream());
  };
  EXPECT_NE(error_of(ReduceOp::kAverage, canonical_tree(first_ids(2))), 0);
  EXPECT_NE(error_of(ReduceOp::kSum, canonical_tree(first_ids(kMostReduceInputs + 1))), 0);
  EXPECT_NE(error_of(ReduceOp::kSum, {{0}, {1}}), 0);
  EXPECT_NE(error_of(ReduceOp::kSum, {{0}, {-1}}), 0);
  EXPECT_NE(error_of(ReduceOp::kSum, {{1'000}}), 0);
  EXPECT_EQ(error_of(ReduceOp::kSum, {}), 0);
}

INSTANTIATE_TEST_SUITE_P(Kernels, Reductions, testing::Values("fake", "plugin"));

TEST(HasKernel, SaysWhatTheCpuSupportsButForThreeOperations) {
  for (const DType dtype : all_dtypes()) {
    for (int number = 0; const auto op = reduce_op_from(number); ++number) {
      const bool is_left_out =
          *op == ReduceOp::kAdasum || *op == ReduceOp::kCustom || (*op == ReduceOp::kAverage && is_integer(dtype));
      EXPECT_EQ(has_kernel(dtype, *op), supports(dtype, *op) && !is_left_out) << name_of(dtype) << " " << name_of(*op);
    }
  }
}

}  // namespace
}  // namespace horo
