// CRC-32C (Castagnoli, RFC 3720): of frame headers always, of payloads according to Config::crc.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace horo {

// Uses the processor's instruction if it has one, else tables; the value is the same. The seed continues a checksum:
// the checksum of a and b is crc32c(b, crc32c(a)). Any thread.
std::uint32_t crc32c(std::span<const std::byte> bytes, std::uint32_t seed = 0);

// The implementation for processors without the instruction; declared for tests.
std::uint32_t crc32c_by_tables(std::span<const std::byte> bytes, std::uint32_t seed = 0);
bool has_crc32c_instruction();

}  // namespace horo
