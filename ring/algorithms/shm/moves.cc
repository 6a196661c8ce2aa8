#include "ring/algorithms/shm/moves.h"

#include <algorithm>

#include "ring/algorithms/shm/arrival_flag.h"
#include "ring/schedule/schedule_parts.h"

namespace horo {
namespace {

// FNV-1a, by words of 64 bits.
std::uint64_t mixed(std::uint64_t hash, std::uint64_t word) {
  return (hash ^ word) * 0x100000001b3;
}

}  // namespace

void ShmMoves::plan(const Collective& c, int size, int index) {
  if (read_from_.size() == static_cast<std::size_t>(size) &&
      planned_ == std::tie(c.kind, c.dtype, c.op, c.root, c.counts, c.contributors)) {
    return;
  }
  planned_ = {c.kind, c.dtype, c.op, c.root, c.counts, c.contributors};
  c_ = &c;
  size_ = static_cast<std::size_t>(size);
  const bool root_exposes = c.kind == CollectiveKind::kBroadcast || c.kind == CollectiveKind::kScatter;
  const bool root_reads = c.kind == CollectiveKind::kGather || c.kind == CollectiveKind::kReduce;
  source_ = root_exposes ? c.root : kNone;
  reader_ = root_reads ? c.root : kNone;
  is_same_for_all_ = c.kind == CollectiveKind::kBroadcast || c.kind == CollectiveKind::kAllGather || root_reads;
  sum_counts();
  read_from_.clear(), read_by_.clear(), exposed_.clear();
  std::size_t read = 0;
  for (int member = 0; member < size; ++member) {
    MoveRange& from = read_from_.emplace_back(range_between(member, index));
    if (c.kind == CollectiveKind::kAllToAll) from.out_begin = read;
    read += from.bytes;
    result_ = reduces(c.kind) ? std::max(from.bytes, member == 0 ? 0 : result_) : read;
    read_by_.push_back(range_between(index, member));
    exposed_.push_back(exposed_by(member));
  }
  measure(size);
  c_ = nullptr;
}

void ShmMoves::sum_counts() {
  const bool is_barrier = c_->kind == CollectiveKind::kBarrier;
  begins_.assign(1, 0);
  for (const std::size_t count : c_->counts)
    begins_.push_back(begins_.back() + (is_barrier ? 0 : count * size_of(c_->dtype)));
}

void ShmMoves::measure(int size) {
  most_exposed_ = *std::max_element(exposed_.begin(), exposed_.end());
  longest_ = 0;
  for (int source = 0; source < size; ++source) {
    for (int reader = 0; reader < size; ++reader) {
      if (source != reader || reduces(c_->kind)) longest_ = std::max(longest_, range_between(source, reader).bytes);
    }
  }
  std::uint64_t rest = mixed(0xcbf29ce484222325, root() == kNone ? 0 : static_cast<std::uint64_t>(c_->root));
  for (const std::size_t begin : begins_) rest = mixed(rest, begin);
  shape_ = signature_shape(c_->kind, c_->dtype, reduces(c_->kind) ? c_->op : ReduceOp::kSum, rest);
}

std::size_t ShmMoves::exposed_by(int member) const {
  const auto at = static_cast<std::size_t>(member);
  switch (c_->kind) {
    case CollectiveKind::kBroadcast:
    case CollectiveKind::kScatter:
      return member == c_->root ? begins_.back() : 0;
    case CollectiveKind::kReduce:
    case CollectiveKind::kReduceScatter:
      return contributes(member) ? begins_.back() : 0;
    case CollectiveKind::kAllGather:
    case CollectiveKind::kGather:
      return bytes_of(at, 1);
    case CollectiveKind::kAllToAll:
      return bytes_of(at * size_, size_);
    default:
      return 0;
  }
}

// out_begin is left to plan() for an all_to_all.
MoveRange ShmMoves::range_between(int source, int reader) const {
  const auto from = static_cast<std::size_t>(source), to = static_cast<std::size_t>(reader);
  switch (c_->kind) {
    case CollectiveKind::kBroadcast:
      return {0, 0, source == c_->root ? begins_.back() : 0};
    case CollectiveKind::kReduce:
      return {0, 0, reader == c_->root && contributes(source) ? begins_.back() : 0};
    case CollectiveKind::kReduceScatter:
      return {begins_[to], 0, contributes(source) ? bytes_of(to, 1) : 0};
    case CollectiveKind::kScatter:
      return {begins_[to], 0, source == c_->root ? bytes_of(to, 1) : 0};
    case CollectiveKind::kAllGather:
      return {0, begins_[from], bytes_of(from, 1)};
    case CollectiveKind::kGather:
      return {0, begins_[from], reader == c_->root ? bytes_of(from, 1) : 0};
    case CollectiveKind::kAllToAll:
      return {bytes_of(from * size_, to), 0, bytes_of(from * size_ + to, 1)};
    default:
      return {};
  }
}

bool ShmMoves::contributes(int member) const {
  return c_->contributors[static_cast<std::size_t>(member)] != kAbsent;
}

}  // namespace horo
