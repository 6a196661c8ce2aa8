// Pieces of named buffers: what a donor gives at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "horo/state/transfer.h"

namespace horo {

struct StatePart {
  std::size_t buffer = 0;  // its number
  std::size_t offset = 0;
  std::size_t bytes = 0;
};
using StatePiece = std::vector<StatePart>;  // small buffers are put together, of one is_of_first

inline constexpr std::size_t kPieceBytes = 2 << 20;  // of a piece, at most
inline constexpr std::size_t kPieceParts = 256;

std::vector<StatePiece> pieces_of(std::span<const NamedBuffer> buffers);
// The hash of a piece in this memory.
std::uint64_t hash_of(const StatePiece& piece, std::span<const NamedBuffer> buffers);

// The first difference between two tables of names and forms, as a text; empty: they are equal. Encoded by table_of().
std::vector<std::byte> table_of(std::span<const NamedBuffer> buffers);
std::string difference_of(std::span<const NamedBuffer> mine, std::span<const std::byte> theirs);

}  // namespace horo
