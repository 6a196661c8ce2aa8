#include "controller/flow.h"

#include <algorithm>

namespace horo {

bool Flow::has_priority(CollectiveKind kind) {
  return kind != CollectiveKind::kBarrier && kind != CollectiveKind::kJoin && kind != CollectiveKind::kSendRecv &&
         kind != CollectiveKind::kAddSet && kind != CollectiveKind::kRemoveSet && kind != CollectiveKind::kRebuild;
}

void Flow::add_priority(std::int32_t priority) {
  least_ = has_priorities_ ? std::min(least_, priority) : priority;
  greatest_ = has_priorities_ ? std::max(greatest_, priority) : priority;
  has_priorities_ = true;
}

bool Flow::must_wait(std::int32_t priority, std::size_t credit_bytes) const {
  return is_ranked() && priority < greatest_ && bytes_ > 0 && bytes_ >= credit_bytes;
}

void Flow::released(std::size_t tensors, std::size_t bytes) {
  unfinished_.emplace_back(tensors, bytes);
  bytes_ += bytes;
}

void Flow::finished(std::size_t tensors) {
  while (tensors > 0 && !unfinished_.empty()) {
    auto& [left, bytes] = unfinished_.front();
    const std::size_t ended = std::min(left, tensors);
    left -= ended;
    tensors -= ended;
    if (left > 0) return;
    bytes_ -= bytes;
    unfinished_.pop_front();
  }
}

void Flow::stop_holding() {
  is_open_ = true;
  unfinished_.clear();
  bytes_ = 0;
}

}  // namespace horo
