// Hostile bytes, the same ones in every run: whatever arrives, the answer is a value or a ProtocolError.
#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "horo/base/error.h"
#include "horo/base/wire.h"

namespace horo {
namespace {

constexpr int kInputs = 100'000;
constexpr std::uint64_t kMaxLength = 1 << 20;

class Fuzz {
 public:
  std::uint64_t number() { return random_(); }
  std::size_t below(std::size_t end) { return random_() % end; }

  std::vector<std::byte> noise(std::size_t most) {
    std::vector<std::byte> bytes(below(most + 1));
    std::generate(bytes.begin(), bytes.end(), [&] { return static_cast<std::byte>(random_()); });
    return bytes;
  }

  // Up to eight changes: a bit, a byte, a cut or an insertion.
  std::vector<std::byte> mutated(std::vector<std::byte> bytes) {
    for (std::size_t change = 0; change <= below(8) && !bytes.empty(); ++change) {
      const std::size_t at = below(bytes.size());
      const std::size_t what = below(4);
      if (what == 0) bytes[at] ^= static_cast<std::byte>(1 << below(8));
      if (what == 1) bytes[at] = static_cast<std::byte>(random_());
      if (what == 2) bytes.resize(at);
      if (what == 3) bytes.insert(bytes.begin() + static_cast<std::ptrdiff_t>(at), static_cast<std::byte>(random_()));
    }
    return bytes;
  }

 private:
  std::mt19937_64 random_{20'260'101};
};

// True if `parse` accepted its input; every exception but ProtocolError fails the test.
template <class Parse>
bool accepts(const Parse& parse) {
  try {
    parse();
    return true;
  } catch (const ProtocolError&) {
    return false;
  }
}

// Reads fields in an order that the bytes themselves choose, as a parser of a message with lists in it does.
void read_anything(std::span<const std::byte> bytes) {
  ByteReader in(bytes);
  std::size_t taken = 0;
  while (in.left() > 0) {
    const int choice = in.u8() % 6;
    if (choice == 0) taken += in.text(64).size();
    if (choice == 1) taken += std::vector<std::uint64_t>(in.count(8)).size() * 8;
    if (choice == 2) taken += in.raw(in.u16()).size();
    if (choice == 3) in.u64();
    if (choice == 4) in.f64();
    if (choice == 5) in.expect_end();
    ASSERT_LE(taken, bytes.size()) << "more was allocated than arrived";
  }
}

TEST(WireFuzz, ReadersEndInAValueOrAProtocolError) {
  Fuzz fuzz;
  int accepted = 0;
  for (int i = 0; i < kInputs; ++i) {
    const auto bytes = fuzz.noise(96);
    accepted += accepts([&] { read_anything(bytes); }) ? 1 : 0;
  }
  EXPECT_GT(accepted, kInputs / 100) << "the inputs are too wild to reach anything";
  EXPECT_LT(accepted, kInputs) << "the inputs are too tame to break anything";
}

TEST(WireFuzz, NoiseIsNeverAFrame) {
  Fuzz fuzz;
  for (int i = 0; i < kInputs; ++i) {
    FrameBytes bytes;
    std::generate(bytes.begin(), bytes.end(), [&] { return static_cast<std::byte>(fuzz.number()); });
    EXPECT_FALSE(accepts([&] { decode_frame(bytes, kMaxLength); }));
  }
}

TEST(WireFuzz, AMutatedFrameIsFoundUnlessItIsTheSameAgain) {
  Fuzz fuzz;
  for (int i = 0; i < kInputs; ++i) {
    const Frame frame{.job = fuzz.number(), .plan = fuzz.number(), .length = fuzz.below(kMaxLength + 1)};
    const FrameBytes good = encode(frame);
    auto bytes = fuzz.mutated({good.begin(), good.end()});
    bytes.resize(kFrameBytes);
    const bool same = std::equal(bytes.begin(), bytes.end(), good.begin());
    EXPECT_EQ(accepts([&] { decode_frame(std::span(bytes).first<kFrameBytes>(), kMaxLength); }), same);
  }
}

TEST(WireFuzz, AFrameWithAFittingChecksumStaysInItsLimits) {
  Fuzz fuzz;
  int accepted = 0;
  for (int i = 0; i < kInputs; ++i) {
    FrameBytes bytes = encode(Frame{.length = fuzz.below(kMaxLength * 2)});
    bytes[8 + fuzz.below(kFrameBytes - 12)] = static_cast<std::byte>(fuzz.below(4));
    const std::uint32_t crc = crc32c(std::span(bytes).first(kFrameBytes - 4));
    for (std::size_t k = 0; k < 4; ++k) bytes[kFrameBytes - 4 + k] = static_cast<std::byte>(crc >> (8 * k));
    accepted += accepts([&] { EXPECT_LE(decode_frame(bytes, kMaxLength).length, kMaxLength); }) ? 1 : 0;
  }
  EXPECT_GT(accepted, 0);
  EXPECT_LT(accepted, kInputs);
}

TEST(WireFuzz, AbortNoticesStayShort) {
  Fuzz fuzz;
  int accepted = 0;
  for (int i = 0; i < kInputs; ++i) {
    const auto good = encode(AbortNotice{static_cast<int>(fuzz.below(64)), std::string(fuzz.below(64), 'r')});
    const auto bytes = fuzz.mutated(good);
    accepted += accepts([&] { EXPECT_LE(decode_abort(bytes).reason.size(), 4096U); }) ? 1 : 0;
  }
  EXPECT_GT(accepted, 0);
  EXPECT_LT(accepted, kInputs);
}

}  // namespace
}  // namespace horo
