#include "ring/algorithms/shm/moves.h"

#include <algorithm>

#include "ring/schedule/schedule_parts.h"

namespace horo {
namespace {

// FNV-1a, of words.
std::uint64_t mixed(std::uint64_t hash, std::uint64_t word) {
  return (hash ^ word) * 0x100000001b3;
}

}  // namespace

void ShmMoves::plan(const Collective& c, int size, int index) {
  if (from_.size() == static_cast<std::size_t>(size) &&
      asked_ == std::tie(c.kind, c.dtype, c.op, c.root, c.counts, c.contributors)) {
    return;
  }
  asked_ = {c.kind, c.dtype, c.op, c.root, c.counts, c.contributors};
  c_ = &c;
  size_ = static_cast<std::size_t>(size);
  const bool root_gives = c.kind == CollectiveKind::kBroadcast || c.kind == CollectiveKind::kScatter;
  const bool root_takes = c.kind == CollectiveKind::kGather || c.kind == CollectiveKind::kReduce;
  giver_ = root_gives ? c.root : kNobody;
  taker_ = root_takes ? c.root : kNobody;
  is_same_for_all_ = c.kind == CollectiveKind::kBroadcast || c.kind == CollectiveKind::kAllGather || root_takes;
  sum_counts();
  from_.clear(), to_.clear(), shown_.clear();
  std::size_t taken = 0;
  for (int member = 0; member < size; ++member) {
    Part& from = from_.emplace_back(part(member, index));
    if (c.kind == CollectiveKind::kAllToAll) from.to = taken;
    taken += from.bytes;
    result_ = reduces(c.kind) ? std::max(from.bytes, member == 0 ? 0 : result_) : taken;
    to_.push_back(part(index, member));
    shown_.push_back(shown_by(member));
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
  most_shown_ = *std::max_element(shown_.begin(), shown_.end());
  longest_ = 0;
  for (int giver = 0; giver < size; ++giver) {
    for (int taker = 0; taker < size; ++taker) {
      if (giver != taker || reduces(c_->kind)) longest_ = std::max(longest_, part(giver, taker).bytes);
    }
  }
  std::uint64_t rest = mixed(0xcbf29ce484222325, root() == kNobody ? 0 : static_cast<std::uint64_t>(c_->root));
  for (const std::size_t begin : begins_) rest = mixed(rest, begin);
  shape_ = shape_of(c_->kind, c_->dtype, reduces(c_->kind) ? c_->op : ReduceOp::kSum, rest);
}

std::size_t ShmMoves::shown_by(int member) const {
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

// Of an all_to_all, `to` is not known here.
ShmMoves::Part ShmMoves::part(int giver, int taker) const {
  const auto from = static_cast<std::size_t>(giver), to = static_cast<std::size_t>(taker);
  switch (c_->kind) {
    case CollectiveKind::kBroadcast:
      return {0, 0, giver == c_->root ? begins_.back() : 0};
    case CollectiveKind::kReduce:
      return {0, 0, taker == c_->root && contributes(giver) ? begins_.back() : 0};
    case CollectiveKind::kReduceScatter:
      return {begins_[to], 0, contributes(giver) ? bytes_of(to, 1) : 0};
    case CollectiveKind::kScatter:
      return {begins_[to], 0, giver == c_->root ? bytes_of(to, 1) : 0};
    case CollectiveKind::kAllGather:
      return {0, begins_[from], bytes_of(from, 1)};
    case CollectiveKind::kGather:
      return {0, begins_[from], taker == c_->root ? bytes_of(from, 1) : 0};
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
