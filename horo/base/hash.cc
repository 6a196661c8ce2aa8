// Eight lanes, each a chain of bijections over every eighth word: for a fixed word the lane's next state is a bijection
// of its state, and for a fixed state a bijection of the word. So a lane in which a single word differs ends in another
// state. The final sum over the lanes is a bijection of each lane. A multiplication moves differences to higher bits,
// and the rotation between two multiplications moves them back to lower ones. Eight chains are independent, so the
// multiplier, with one result per cycle, is always busy: four bytes per cycle.
#include "horo/base/hash.h"

#include <array>
#include <bit>
#include <cstring>

namespace horo {
namespace {

static_assert(std::endian::native == std::endian::little);

constexpr std::size_t kLanes = 8;
constexpr std::size_t kBlockBytes = kLanes * sizeof(std::uint64_t);
// Odd, with about as many ones as zeros: the fractions of the golden ratio and of the square root of 2.
constexpr std::uint64_t kFirst = 0x9e3779b97f4a7c15ULL;
constexpr std::uint64_t kSecond = 0x6a09e667f3bcc909ULL;

using HashLanes = std::array<std::uint64_t, kLanes>;

std::uint64_t mixed(std::uint64_t state, std::uint64_t word) {
  return std::rotl((state ^ word) * kFirst, 32) * kSecond;
}

void mix_block(HashLanes& lanes, const std::byte* block) {
  std::array<std::uint64_t, kLanes> words{};
  std::memcpy(words.data(), block, kBlockBytes);
  for (std::size_t lane = 0; lane < kLanes; ++lane) lanes[lane] = mixed(lanes[lane], words[lane]);
}

}  // namespace

std::uint64_t hash_bytes(std::span<const std::byte> bytes, std::uint64_t seed) {
  HashLanes lanes{};
  for (std::size_t lane = 0; lane < kLanes; ++lane) lanes[lane] = mixed(seed, lane + 1);
  std::size_t at = 0;
  for (; at + kBlockBytes <= bytes.size(); at += kBlockBytes) mix_block(lanes, bytes.data() + at);
  if (at < bytes.size()) {
    std::array<std::byte, kBlockBytes> last{};
    std::memcpy(last.data(), bytes.data() + at, bytes.size() - at);
    mix_block(lanes, last.data());
  }
  std::uint64_t sum = mixed(seed, bytes.size());
  for (const std::uint64_t lane : lanes) sum = mixed(sum, lane);
  sum = mixed(sum ^ sum >> 32, 0);
  return sum ^ sum >> 29;
}

}  // namespace horo
