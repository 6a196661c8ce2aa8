// Proof that a peer holds the job key: HMAC-SHA256 over a transcript with fresh nonces (RFC 2104, FIPS 180-4).
#pragma once

#include <array>
#include <cstddef>
#include <span>

namespace horo {

inline constexpr std::size_t kKeyBytes = 32;
using JobKey = std::array<std::byte, kKeyBytes>;
using Nonce = std::array<std::byte, 16>;
using Mac = std::array<std::byte, 32>;

// A nonce from the kernel's random source. Throws std::runtime_error if the source fails.
Nonce make_nonce();
JobKey make_job_key();

Mac hmac_sha256(std::span<const std::byte> key, std::span<const std::byte> text);

// Compares in a time that does not depend on the contents.
bool equal_macs(const Mac& a, const Mac& b);

}  // namespace horo
