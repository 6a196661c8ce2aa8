// The processor's instruction has a latency of three cycles and a throughput of one per cycle, so three parts of a
// block are summed in parallel and combined: appending n zero bytes is a linear map of the checksum, computed by
// repeated squaring of the matrix of one zero bit. Without the instruction eight bytes at a time go through eight
// tables (Kounavis and Berry, "A systematic approach to building high performance software-based CRC generators",
// 2005).
#include "horo/base/crc32c.h"

#include <array>
#include <bit>
#include <cstring>

#if defined(__aarch64__)
#include <sys/auxv.h>
#endif

namespace horo {
namespace {

static_assert(std::endian::native == std::endian::little);

constexpr std::uint32_t kPolynomial = 0x82f63b78U;
constexpr std::size_t kWordBytes = 8;

using ByteTable = std::array<std::uint32_t, 256>;

// Table k: the effect of a byte on the checksum k bytes later.
constexpr std::array<ByteTable, kWordBytes> make_byte_tables() {
  std::array<ByteTable, kWordBytes> tables{};
  for (std::uint32_t i = 0; i < 256; ++i) {
    std::uint32_t crc = i;
    for (int bit = 0; bit < 8; ++bit) crc = (crc >> 1) ^ ((crc & 1) != 0 ? kPolynomial : 0U);
    tables[0][i] = crc;
  }
  for (std::size_t k = 1; k < kWordBytes; ++k) {
    for (std::size_t i = 0; i < 256; ++i) {
      tables[k][i] = (tables[k - 1][i] >> 8) ^ tables[0][tables[k - 1][i] & 0xff];
    }
  }
  return tables;
}
constexpr auto kByteTables = make_byte_tables();

std::uint64_t word_at(const std::byte* bytes) {
  std::uint64_t word = 0;
  std::memcpy(&word, bytes, sizeof(word));
  return word;
}

std::uint32_t one_byte(std::uint32_t crc, std::byte byte) {
  return kByteTables[0][(crc ^ std::to_integer<std::uint32_t>(byte)) & 0xff] ^ (crc >> 8);
}

using Matrix = std::array<std::uint32_t, 32>;  // column i: the image of bit i

constexpr std::uint32_t product(const Matrix& matrix, std::uint32_t vector) {
  std::uint32_t sum = 0;
  for (std::size_t i = 0; i < matrix.size(); ++i) sum ^= (vector >> i & 1) != 0 ? matrix[i] : 0U;
  return sum;
}

// The matrix of 2^k zero bytes.
constexpr Matrix past_zeros(std::size_t bytes) {
  Matrix matrix{kPolynomial};
  for (std::size_t i = 1; i < matrix.size(); ++i) matrix[i] = 1U << (i - 1);
  for (std::size_t bits = 1; bits < 8 * bytes; bits *= 2) {
    const Matrix half = matrix;
    for (std::size_t i = 0; i < matrix.size(); ++i) matrix[i] = product(half, half[i]);
  }
  return matrix;
}

// The product with a matrix, by the bytes of the vector.
constexpr std::array<ByteTable, 4> tables_of(const Matrix& matrix) {
  std::array<ByteTable, 4> tables{};
  for (std::size_t k = 0; k < tables.size(); ++k) {
    for (std::uint32_t i = 0; i < 256; ++i) tables[k][i] = product(matrix, i << (8 * k));
  }
  return tables;
}

template <std::size_t kBytes>
std::uint32_t moved_past(std::uint32_t crc) {
  static constexpr auto kTables = tables_of(past_zeros(kBytes));
  return kTables[0][crc & 0xff] ^ kTables[1][crc >> 8 & 0xff] ^ kTables[2][crc >> 16 & 0xff] ^ kTables[3][crc >> 24];
}

#if defined(__x86_64__)
bool find_instruction() {
  return __builtin_cpu_supports("sse4.2") != 0;
}
std::uint64_t one_word(std::uint64_t crc, std::uint64_t word) {
  asm("crc32q %1, %0" : "+r"(crc) : "rm"(word));
  return crc;
}
#elif defined(__aarch64__)
bool find_instruction() {
  constexpr unsigned long kHasCrc32 = 1UL << 7;  // HWCAP_CRC32
  return (::getauxval(AT_HWCAP) & kHasCrc32) != 0;
}
std::uint64_t one_word(std::uint64_t crc, std::uint64_t word) {
  asm(".arch_extension crc\n\tcrc32cx %w0, %w0, %x1" : "+r"(crc) : "r"(word));
  return crc;
}
#else
bool find_instruction() {
  return false;
}
std::uint64_t one_word(std::uint64_t crc, std::uint64_t) {
  return crc;
}
#endif

// Consumes the bytes that it sums from the front of `left`.
template <std::size_t kBytes>
std::uint32_t three_at_once(std::uint32_t crc, std::span<const std::byte>& left) {
  for (; left.size() >= 3 * kBytes; left = left.subspan(3 * kBytes)) {
    const std::byte* at = left.data();
    std::uint64_t first = crc, second = 0, third = 0;
    for (std::size_t i = 0; i < kBytes; i += kWordBytes) {
      first = one_word(first, word_at(at + i));
      second = one_word(second, word_at(at + kBytes + i));
      third = one_word(third, word_at(at + 2 * kBytes + i));
    }
    crc = moved_past<kBytes>(static_cast<std::uint32_t>(first)) ^ static_cast<std::uint32_t>(second);
    crc = moved_past<kBytes>(crc) ^ static_cast<std::uint32_t>(third);
  }
  return crc;
}

std::uint32_t by_instruction(std::span<const std::byte> left, std::uint32_t crc) {
  crc = three_at_once<4096>(crc, left);
  crc = three_at_once<128>(crc, left);
  for (; left.size() >= kWordBytes; left = left.subspan(kWordBytes)) {
    crc = static_cast<std::uint32_t>(one_word(crc, word_at(left.data())));
  }
  for (const std::byte byte : left) crc = one_byte(crc, byte);
  return crc;
}

}  // namespace

bool has_crc32c_instruction() {
  static const bool has = find_instruction();
  return has;
}

std::uint32_t crc32c_by_tables(std::span<const std::byte> bytes, std::uint32_t seed) {
  std::uint32_t crc = ~seed;
  for (; bytes.size() >= kWordBytes; bytes = bytes.subspan(kWordBytes)) {
    const std::uint64_t word = word_at(bytes.data()) ^ crc;
    crc = 0;
    for (std::size_t k = 0; k < kWordBytes; ++k) crc ^= kByteTables[kWordBytes - 1 - k][word >> (8 * k) & 0xff];
  }
  for (const std::byte byte : bytes) crc = one_byte(crc, byte);
  return ~crc;
}

std::uint32_t crc32c(std::span<const std::byte> bytes, std::uint32_t seed) {
  return has_crc32c_instruction() ? ~by_instruction(bytes, ~seed) : crc32c_by_tables(bytes, seed);
}

}  // namespace horo
