#include "tools/horo/bench/task_data.h"

#include <algorithm>
#include <stdexcept>

#include "horo/base/types.h"

namespace horo::tools {
namespace {

constexpr std::size_t kBlockElements = 512 * Pattern::kPeriod;  // enough for fast copies, and fits into a cache

DType type_named(const std::string& name) {
  for (int i = 0; i < 256; ++i) {
    if (const auto dtype = dtype_from(i); dtype && name_of(*dtype) == name) return *dtype;
  }
  throw std::invalid_argument("no such type: " + name);
}

}  // namespace

TaskData::TaskData(const BenchTask& task, std::size_t bytes)
    : collective_(task.collective), pattern_(type_named(task.dtype), task.size) {
  lay_out(task.rank, task.size);
  const std::size_t element = size_of(type_named(task.dtype));
  block_bytes_ = kBlockElements * element;
  const std::size_t sections = std::max(in_.size(), out_.size());
  count_ = std::max<std::size_t>(bytes / element / sections, 1) * sections;
  section_bytes_ = count_ / sections * element;
}

void TaskData::lay_out(int rank, int size) {
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

void TaskData::begin_turn(int turn) {
  turn_ = turn;
  const std::size_t bytes = std::min(section_bytes_, block_bytes_);
  for (std::size_t odd = 0; odd < 2; ++odd) {
    blocks_[odd].resize(in_.size() * bytes);
    for (std::size_t i = 0; i < in_.size(); ++i) {
      const std::span<std::byte> block = std::span(blocks_[odd]).subspan(i * bytes, bytes);
      pattern_.fill(block, in_[i].rank, round_of(odd) + in_[i].later);
    }
  }
}

void TaskData::repeat(std::span<const std::byte> blocks, void* in) const {
  auto* to = static_cast<std::byte*>(in);
  for (; !blocks.empty(); blocks = blocks.subspan(block_bytes_), to += section_bytes_) {
    for (std::size_t done = 0; done < section_bytes_; done += block_bytes_) {
      std::memcpy(to + done, blocks.data(), std::min(block_bytes_, section_bytes_ - done));
    }
  }
}

std::size_t TaskData::count_wrong(const void* out, std::size_t operation) const {
  const auto* from = static_cast<const std::byte*>(out);
  std::size_t wrong = 0;
  for (std::size_t i = 0; i < out_.size() && is_checked_; ++i) {
    const Section& section = out_[i];
    const std::span<const std::byte> result(from, section_bytes_);
    const int round = round_of(operation) + section.later;
    wrong += is_sum_ ? pattern_.count_wrong(result, round) : pattern_.count_wrong_copy(result, section.rank, round);
    from += section_bytes_;
  }
  return wrong;
}

}  // namespace horo::tools
