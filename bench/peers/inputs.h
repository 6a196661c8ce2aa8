// ContestData: what goes into a collective of a contest and what must come out. Inputs repeat a short block, so that a
// buffer is rewritten at memory speed; those of neighbouring operations differ, so that no old result looks right.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <vector>

#include "bench/peers/contest.h"
#include "tools/horo/bench/pattern.h"

namespace horo {

class ContestData {
 public:
  // `task` has all but its memory and sizes; sets its count and bytes to whole elements of `bytes`, for each rank as
  // many where a collective cuts. Throws std::invalid_argument.
  ContestData(contest_task& task, std::size_t bytes);

  // The inputs of a turn's operations, by whether their number is odd.
  void begin_turn(int turn);
  // Where short operations are timed together, this is timed with them: one copy.
  void rewrite(void* in, std::size_t operation) const {
    const std::vector<std::byte>& blocks = blocks_[operation % 2];
    part_bytes_ <= block_bytes_ ? void(std::memcpy(in, blocks.data(), blocks.size())) : repeat(blocks, in);
  }
  std::size_t count_wrong(const void* out, std::size_t operation) const;

 private:
  // A piece of a buffer: the pattern of that rank and of so many rounds later.
  struct Part {
    int rank = 0;
    int later = 0;
  };

  void lay_out(int rank, int size);
  void repeat(std::span<const std::byte> blocks, void* in) const;
  int round_of(std::size_t operation) const { return 2 * turn_ + static_cast<int>(operation % 2); }

  const std::string collective_;
  const tools::Pattern pattern_;
  std::vector<Part> in_, out_;
  bool is_sum_ = false;  // out_ are sums over all ranks
  bool is_checked_ = true;
  std::size_t part_bytes_ = 0, block_bytes_ = 0;
  int turn_ = 0;
  std::vector<std::byte> blocks_[2];  // one of each part of in, side by side
};

}  // namespace horo
