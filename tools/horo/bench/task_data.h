// TaskData: the inputs of a task and the check of its results. An input repeats a short block, so that a buffer is
// rewritten at memory speed. The inputs of consecutive operations differ, so that a stale result is found.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <vector>

#include "tools/horo/bench/pattern.h"

namespace horo::tools {

// One rank's view of a collective. Rank 0 is the root.
struct BenchTask {
  std::string collective;  // "all_reduce"
  std::string dtype;       // "float32"
  int rank = 0, size = 1;
};

class TaskData {
 public:
  // Buffers of the whole elements in `bytes`; where the collective divides a buffer, of a multiple of the number of
  // ranks, at least one element each. Throws std::invalid_argument for a collective or type that does not exist.
  TaskData(const BenchTask& task, std::size_t bytes);

  std::size_t count() const { return count_; }  // elements of the longer buffer
  std::size_t in_bytes() const { return in_.size() * section_bytes_; }
  std::size_t out_bytes() const { return out_.size() * section_bytes_; }

  // Prepares the inputs of a turn: one for operations with an even number, one for those with an odd number.
  void begin_turn(int turn);
  // Writes the input of an operation. It is part of the measured time of short operations, so it is one copy.
  void rewrite(void* in, std::size_t operation) const {
    const std::vector<std::byte>& blocks = blocks_[operation % 2];
    section_bytes_ <= block_bytes_ ? void(std::memcpy(in, blocks.data(), blocks.size())) : repeat(blocks, in);
  }
  std::size_t count_wrong(const void* out, std::size_t operation) const;

 private:
  // One section of a buffer: the pattern of rank `rank`, `later` rounds after the current one.
  struct Section {
    int rank = 0;
    int later = 0;
  };

  void lay_out(int rank, int size);
  void repeat(std::span<const std::byte> blocks, void* in) const;
  int round_of(std::size_t operation) const { return 2 * turn_ + static_cast<int>(operation % 2); }

  const std::string collective_;
  const Pattern pattern_;
  std::vector<Section> in_, out_;
  bool is_sum_ = false;  // the sections of out_ are sums over all ranks
  bool is_checked_ = true;
  std::size_t count_ = 0, section_bytes_ = 0, block_bytes_ = 0;
  int turn_ = 0;
  std::vector<std::byte> blocks_[2];  // by parity of the operation; the blocks of all sections of in_, concatenated
};

}  // namespace horo::tools
