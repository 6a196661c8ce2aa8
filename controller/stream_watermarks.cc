#include "controller/stream_watermarks.h"

#include <algorithm>
#include <string>

#include "horo/base/error.h"

namespace horo {

void StreamWatermarks::take(int from, std::uint64_t applied) {
  std::uint64_t& before = applied_[static_cast<std::size_t>(from)];
  if (applied < before || applied > sent_) {
    throw ProtocolError("rank " + std::to_string(from) + " applied " + std::to_string(applied) + " messages, between " +
                        std::to_string(before) + " and " + std::to_string(sent_) + " expected");
  }
  before = applied;
  reported_.insert(from);
}

void StreamWatermarks::set_removed(std::uint32_t set) {
  last_removal_ = sent_ + 1;
  std::erase_if(failed_, [set](const auto& failure) { return failure.first.set == set; });
}

bool StreamWatermarks::crosses_failure(int from, const TensorName& name) const {
  if (failed_.empty()) return false;
  const auto found = failed_.find(name);
  return found != failed_.end() && applied_[static_cast<std::size_t>(from)] < found->second;
}

std::uint64_t StreamWatermarks::applied_by_all(const RankSet& left) const {
  std::uint64_t least = sent_;
  for (std::size_t rank = 0; rank < applied_.size(); ++rank) {
    if (!left.contains(static_cast<int>(rank))) least = std::min(least, applied_[rank]);
  }
  return least;
}

void StreamWatermarks::forget_failures(const RankSet& left) {
  if (failed_.empty()) return;
  const std::uint64_t least = applied_by_all(left);
  std::erase_if(failed_, [&](const auto& failure) { return failure.second <= least; });
}

}  // namespace horo
