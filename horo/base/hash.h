// A hash of memory near memory speed, for the comparison of tensors between ranks. Not for untrusted input: it is easy
// to construct two inputs with one hash.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace horo {

// The hash of the bytes and their number; equal on all processors. Inputs of equal length that differ inside a single
// aligned group of eight bytes, in one bit for instance, have different hashes; for all other differences the
// probability of equal hashes is about 2^-64. Any thread.
std::uint64_t hash_bytes(std::span<const std::byte> bytes, std::uint64_t seed = 0);

}  // namespace horo
