// What a rank wants of a checkpoint, and the way of the bytes into its memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "horo/checkpoint/deal.h"
#include "horo/checkpoint/reader.h"

namespace horo::checkpoint {

class Delivery {
 public:
  // The checkpoint has all of the tensors, in the same form. `tensors` stays where it is.
  Delivery(const Checkpoint& checkpoint, const std::vector<CheckpointTensor>& tensors);

  struct Block {
    BlockPlace place;
    bool is_new = true;  // it has bytes of tensors alone whose memory is new
  };
  // The blocks that have bytes of the tensors, in the order of the files. are_new: not 0 for the tensors whose memory
  // is new.
  std::vector<Block> blocks(std::string_view are_new) const;
  // Copies what is wanted of `bytes`, which begin at byte `at` of the block.
  void deliver(BlockPlace place, std::uint64_t at, std::span<const std::byte> bytes) const;
  // Reads the block from the files and delivers it. Long pieces go straight to their tensors, and have been written
  // when the checksum turns out to be wrong. Throws as Checkpoint::read.
  void take(Checkpoint& checkpoint, BlockPlace place);

 private:
  // A piece of a tensor that this rank wants, in bytes.
  struct WantedPiece {
    const CheckpointTensor* tensor = nullptr;
    std::uint64_t offset = 0;  // in the part
    std::uint64_t bytes = 0;
    std::uint64_t begin = 0;  // in the tensor
    std::uint64_t row_bytes = 0;
  };

  static std::vector<Block> merged(std::vector<Block> blocks);
  const WantedPiece* first_behind(std::uint32_t part, std::uint64_t offset) const;
  std::byte* place_of(BlockPlace place, std::uint64_t at, std::uint64_t bytes) const;
  static void put(const WantedPiece& piece, std::uint64_t at, std::span<const std::byte> bytes);

  const std::vector<CheckpointTensor>& tensors_;
  std::vector<std::vector<WantedPiece>> by_part_;
  std::unique_ptr<std::byte[]> buffer_;  // of a block, for bytes that lie in no one place
};

}  // namespace horo::checkpoint
