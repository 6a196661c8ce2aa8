// Random collectives against an independent reference, and the reference against known values.

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstdlib>

#include "ring/schedule/schedule.h"
#include "tests/effort.h"
#include "tests/proof/run_round.h"

namespace horo::proof {
namespace {

constexpr std::uint64_t kJobs = test::effort(500);

// HORO_PROOF_SEED sets another seed: HORO_PROOF_SEED=7 ctest -R Property.
std::uint64_t seed() {
  const char* text = std::getenv("HORO_PROOF_SEED");
  return text != nullptr ? std::strtoull(text, nullptr, 10) : 20'000;
}

TEST(Property, EveryCollectiveHasTheResultOfItsDefinition) {
  const Tally tally = run_rounds(seed(), kJobs);
  EXPECT_GE(tally.jobs, kJobs);
  EXPECT_TRUE(tally.found.empty() && tally.flaky.empty())
      << describe(tally) << "again: HORO_PROOF_SEED=" << seed() << ", or: prove cases --seed SEED --jobs 1";
  if (test::kSanitized) return;
  for (const NamedMaker& maker : all_schedule_makers()) {
    const auto name = std::string(name_of(maker.kind)) + " by " + maker.name;
    EXPECT_GT(tally.ran.count(name), 0u) << name << " was never drawn";
  }
}

TEST(Property, OneWrongBitIsFoundAndTheRoundShrunk) {
  const auto spoil = [](const Job& job, std::size_t member, std::span<std::byte> output) {
    const bool is_it = job.kind == CollectiveKind::kAllReduce && member == 1 && output.size() > 40;
    if (is_it) output[output.size() / 2] ^= std::byte{1};
  };
  const Tally tally = run_rounds(1, 400, spoil);
  ASSERT_FALSE(tally.found.empty());
  const Round& smallest = tally.found.front().smallest;
  ASSERT_EQ(smallest.jobs(), 1u);
  EXPECT_EQ(smallest.wire, test::Wire::kInProcess);
  EXPECT_LE(smallest.teams[0].jobs[0].counts[0], 41u);
  EXPECT_EQ(tally.found.front().wrong.size(), 1u) << describe(tally);
}

TEST(Property, TheCanonicalSumDependsOnTheIds) {
  const Arithmetic sum(DType::kFloat32, ReduceOp::kSum, {});
  const std::vector<Value> values = {{0, 1}, {0, 0x1p-24}, {0, 0x1p-24}, {0, 0x1p-24}};
  EXPECT_EQ(canonical_sum(sum, std::vector<std::int64_t>{0, 1, 2, 3}, values).re, 1 + 0x1p-23);
  EXPECT_EQ(canonical_sum(sum, std::vector<std::int64_t>{0, 2, 4, 8}, values).re, 1);
}

double round_trip(DType dtype, double value) {
  return decode_float(encode_float(value, format_of(dtype)), format_of(dtype));
}

TEST(Elements, AreRoundedToNearestAndTiesToEven) {
  EXPECT_EQ(encode_float(1.0, format_of(DType::kFloat16)), 0x3c00u);
  EXPECT_EQ(encode_float(65504, format_of(DType::kFloat16)), 0x7bffu);
  EXPECT_EQ(encode_float(65520, format_of(DType::kFloat16)), 0x7c00u) << "the midpoint above the largest number";
  EXPECT_EQ(encode_float(0x1p-24, format_of(DType::kFloat16)), 1u);
  EXPECT_EQ(encode_float(0x1p-25, format_of(DType::kFloat16)), 0u);
  EXPECT_EQ(encode_float(-1.5, format_of(DType::kBFloat16)), 0xbfc0u);
  EXPECT_EQ(round_trip(DType::kBFloat16, 1 + 0x1p-8), 1.0);
  EXPECT_EQ(round_trip(DType::kBFloat16, 1 + 3 * 0x1p-8), 1 + 0x1p-6);
}

TEST(Elements, OfSingleAndDoublePrecisionEqualThoseOfTheProcessor) {
  std::mt19937_64 random(1);
  for (int i = 0; i < 20'000; ++i) {
    const auto bits = random();
    const auto low = static_cast<std::uint32_t>(bits);
    const auto single = std::bit_cast<float>(low);
    const auto wide = std::bit_cast<double>(bits);
    if (!std::isnan(single)) {
      ASSERT_EQ(decode_float(low, format_of(DType::kFloat32)), static_cast<double>(single));
      ASSERT_EQ(encode_float(single, format_of(DType::kFloat32)), low);
    }
    if (std::isnan(wide)) continue;
    ASSERT_EQ(decode_float(bits, format_of(DType::kFloat64)), wide);
    ASSERT_EQ(encode_float(wide, format_of(DType::kFloat64)), bits);
    ASSERT_EQ(round_trip(DType::kFloat32, wide), static_cast<double>(static_cast<float>(wide)));
  }
}

}  // namespace
}  // namespace horo::proof
