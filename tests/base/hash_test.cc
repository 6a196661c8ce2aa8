#include "horo/base/hash.h"

#include <gtest/gtest.h>

#include <cstring>
#include <random>
#include <set>
#include <string_view>
#include <vector>

namespace horo {
namespace {

std::vector<std::byte> random_bytes(std::size_t size) {
  std::mt19937_64 random(size + 1);
  std::vector<std::byte> bytes(size);
  for (std::byte& byte : bytes) byte = static_cast<std::byte>(random());
  return bytes;
}

std::uint64_t hash_of(std::string_view text, std::uint64_t seed = 0) {
  return hash_bytes(std::as_bytes(std::span(text.data(), text.size())), seed);
}

TEST(Hash, IsTheSameOnEveryProcessor) {
  EXPECT_EQ(hash_of(""), 0x6455db0185baa81eULL);
  EXPECT_EQ(hash_of("a"), 0x169ebe5432882f45ULL);
  EXPECT_EQ(hash_bytes(random_bytes(1000), 7), 0x223146e1e37e870eULL);
}

TEST(Hash, EveryBitChangesIt) {
  for (const std::size_t size : {1UL, 4UL, 8UL, 63UL, 64UL, 65UL, 200UL, 1024UL}) {
    std::vector<std::byte> bytes = random_bytes(size);
    std::set<std::uint64_t> seen{hash_bytes(bytes)};
    for (std::size_t bit = 0; bit < 8 * size; ++bit) {
      const auto flip = static_cast<std::byte>(1U << bit % 8);
      bytes[bit / 8] ^= flip;
      EXPECT_TRUE(seen.insert(hash_bytes(bytes)).second) << size << " bytes, bit " << bit;
      bytes[bit / 8] ^= flip;
    }
  }
}

TEST(Hash, TwoChangedBitsDoNotCancel) {
  std::vector<std::byte> bytes(256);
  std::set<std::uint64_t> seen;
  const auto flip = [&](std::size_t bit) { bytes[bit / 8] ^= static_cast<std::byte>(1U << bit % 8); };
  for (std::size_t first = 0; first < 8 * bytes.size(); ++first) {
    flip(first);
    for (std::size_t second = first + 1; second < first + 200 && second < 8 * bytes.size(); ++second) {
      flip(second);
      EXPECT_TRUE(seen.insert(hash_bytes(bytes)).second) << "bits " << first << " and " << second;
      flip(second);
    }
    flip(first);
  }
}

TEST(Hash, ZerosOfEveryLengthDiffer) {
  const std::vector<std::byte> zeros(300);
  std::set<std::uint64_t> seen;
  for (std::size_t size = 0; size <= zeros.size(); ++size) seen.insert(hash_bytes(std::span(zeros).first(size)));
  EXPECT_EQ(seen.size(), zeros.size() + 1);
}

TEST(Hash, SignsOfNeighboursDoNotCancel) {
  std::vector<float> values(512, 1.0F);
  std::set<std::uint64_t> seen{hash_bytes(std::as_bytes(std::span(values)))};
  for (std::size_t stride = 1; stride <= 64; ++stride) {
    for (std::size_t at = 0; at + 3 * stride < values.size(); at += 7) {
      std::vector<float> negated = values;
      for (std::size_t i = 0; i <= 3; ++i) negated[at + i * stride] = -1.0F;
      EXPECT_TRUE(seen.insert(hash_bytes(std::as_bytes(std::span(negated)))).second) << at << " by " << stride;
    }
  }
}

TEST(Hash, AlignmentDoesNotMatterAndTheSeedDoes) {
  const std::vector<std::byte> bytes = random_bytes(500);
  for (std::size_t shift = 0; shift < 8; ++shift) {
    std::vector<std::byte> moved(bytes.size() + shift);
    std::memcpy(moved.data() + shift, bytes.data(), bytes.size());
    EXPECT_EQ(hash_bytes(std::span(moved).subspan(shift)), hash_bytes(bytes));
  }
  EXPECT_NE(hash_bytes(bytes, 1), hash_bytes(bytes));
}

}  // namespace
}  // namespace horo
