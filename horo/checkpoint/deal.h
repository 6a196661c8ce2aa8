// The deal: which rank writes which rows of which tensor into which part.
//
// Replicated tensors lie on a line, which is cut into as many stretches of bytes as there are ranks, at the nearest
// rows; ranks that write more of other tensors get less of it. Rows of ranks come from the ranks that have them. A file
// of safetensors has one piece of a tensor, so a rank with several ranges of rows writes several parts.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "horo/checkpoint/index.h"

namespace horo::checkpoint {

// A tensor of the caller. Its rows are counted from 0 where the rank has ranges of them.
struct CheckpointTensor {
  std::string name;
  std::string dtype;
  std::vector<std::int64_t> shape;
  TensorKind kind = TensorKind::kReplicated;
  std::vector<RowRange> ranges;  // kSharded: of this rank, ascending
  int alias_of = -1;             // place of the tensor with the same memory, before this one
  std::byte* data = nullptr;     // the rows of the ranges packed, or all rows
  bool is_new = false;           // the caller reads `data` after a load that has not thrown, and not before
};

struct DealtPiece {
  std::size_t tensor = 0;
  std::int64_t row = 0;
  std::int64_t rows = 0;
  std::int64_t local_row = 0;  // in the memory of the rank
  std::uint64_t offset = 0;    // in the data of the part
  std::uint64_t bytes = 0;
};

struct DealtPart {
  std::size_t rank = 0;
  std::string file;
  std::vector<DealtPiece> pieces;
  std::uint64_t data_bytes = 0;
};

using RangesByTensor = std::vector<std::vector<RowRange>>;  // of a rank; empty for tensors that are not sharded

// The parts, by rank. Equal on all ranks that call it with the same arguments. Throws std::invalid_argument: ranks that
// have a row twice, or a row that no rank has.
std::vector<DealtPart> deal(std::span<const CheckpointTensor> tensors, std::span<const RangesByTensor> ranges_by_rank);

// Why the tensors cannot be saved or loaded: the form of one, a name twice, ranges, an alias; empty: they can.
std::string fault_of(std::span<const CheckpointTensor> tensors);

// Tensors for comparison between ranks: without ranges and memory. The first difference between two of these, in words;
// empty: they are equal.
std::vector<std::byte> table_of(std::span<const CheckpointTensor> tensors);
std::string difference_between(std::span<const std::byte> one, std::span<const std::byte> other);

}  // namespace horo::checkpoint
