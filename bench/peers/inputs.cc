#include "bench/peers/inputs.h"

#include <algorithm>
#include <stdexcept>

#include "horo/base/types.h"

namespace horo {
namespace {

constexpr std::size_t kBlockElements =
    512 * tools::Pattern::kPeriod;  // many enough for fast copies, few enough for a cache

DType type_named(const std::string& name) {
  for (int i = 0; i < 256; ++i) {
    if (const auto dtype = dtype_from(i); dtype && name_of(*dtype) == name) return *dtype;
  }
  throw std::invalid_argument("no such type: " + name);
}

}  // namespace

ContestData::ContestData(contest_task& task, std::size_t bytes)
    : collective_(task.collective), pattern_(type_named(task.dtype), task.size) {
  lay_out(task.rank, task.size);
  const std::size_t element = size_of(type_named(task.dtype));
  block_bytes_ = kBlockElements * element;
  const std::size_t parts = std::max(in_.size(), out_.size());
  task.count = std::max<std::size_t>(bytes / element / parts, 1) * parts;
  part_bytes_ = task.count / parts * element;
  task.in_bytes = in_.size() * part_bytes_;
  task.out_bytes = out_.size() * part_bytes_;
}

void ContestData::lay_out(int rank, int size) {
  const bool is_whole = collective_ == "all_reduce" || collective_ == "reduce" || collective_ == "broadcast";
  is_sum_ = collective_ == "all_reduce" || collective_ == "reduce" || collective_ == "reduce_scatter";
  is_checked_ = rank == 0 || (collective_ != "reduce" && collective_ != "gather");
  if (is_whole) {
    in_ = {{rank, 0}};
    out_ = {{collective_ == "broadcast" ? 0 : rank, 0}};
  } else if (collective_ == "scatter") {
    out_ = {{rank, 0}};
  } else if (collective_ == "reduce_scatter") {
    out_ = {{0, rank}};
  } else if (collective_ == "all_gather" || collective_ == "gather") {
    in_ = {{rank, 0}};
  } else if (collective_ != "all_to_all") {
    throw std::invalid_argument("no such collective: " + collective_);
  }
  for (int other = 0; other < size && !is_whole; ++other) {
    if (collective_ == "scatter") in_.push_back({other, 0});
    if (collective_ == "reduce_scatter") in_.push_back({rank, other});
    if (collective_ == "all_gather" || collective_ == "gather") out_.push_back({other, 0});
    if (collective_ == "all_to_all") {
      in_.push_back({rank * size + other, 0});
      out_.push_back({other * size + rank, 0});
    }
  }
}

void ContestData::begin_turn(int turn) {
  turn_ = turn;
  const std::size_t bytes = std::min(part_bytes_, block_bytes_);
  for (std::size_t odd = 0; odd < 2; ++odd) {
    blocks_[odd].resize(in_.size() * bytes);
    for (std::size_t i = 0; i < in_.size(); ++i) {
      const std::span<std::byte> block = std::span(blocks_[odd]).subspan(i * bytes, bytes);
      pattern_.fill(block, in_[i].rank, round_of(odd) + in_[i].later);
    }
  }
}

void ContestData::repeat(std::span<const std::byte> blocks, void* in) const {
  auto* to = static_cast<std::byte*>(in);
  for (; !blocks.empty(); blocks = blocks.subspan(block_bytes_), to += part_bytes_) {
    for (std::size_t done = 0; done < part_bytes_; done += block_bytes_) {
      std::memcpy(to + done, blocks.data(), std::min(block_bytes_, part_bytes_ - done));
    }
  }
}

std::size_t ContestData::count_wrong(const void* out, std::size_t operation) const {
  const auto* from = static_cast<const std::byte*>(out);
  std::size_t wrong = 0;
  for (std::size_t i = 0; i < out_.size() && is_checked_; ++i) {
    const Part& part = out_[i];
    const std::span<const std::byte> result(from, part_bytes_);
    const int round = round_of(operation) + part.later;
    wrong += is_sum_ ? pattern_.count_wrong(result, round) : pattern_.count_wrong_copy(result, part.rank, round);
    from += part_bytes_;
  }
  return wrong;
}

}  // namespace horo
