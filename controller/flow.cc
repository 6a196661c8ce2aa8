#include "controller/flow.h"

#include <algorithm>

namespace horo {

bool Flow::orders(CollectiveKind kind) {
  return kind != CollectiveKind::kBarrier && kind != CollectiveKind::kJoin && kind != CollectiveKind::kSendRecv &&
         kind != CollectiveKind::kAddSet && kind != CollectiveKind::kRemoveSet;
}

void Flow::hear(std::int32_t priority) {
  least_ = heard_ ? std::min(least_, priority) : priority;
  greatest_ = heard_ ? std::max(greatest_, priority) : priority;
  heard_ = true;
}

bool Flow::holds(std::int32_t priority, std::size_t credit_bytes) const {
  return is_ranked() && priority < greatest_ && bytes_ > 0 && bytes_ >= credit_bytes;
}

void Flow::send(std::size_t tensors, std::size_t bytes) {
  sent_.emplace_back(tensors, bytes);
  bytes_ += bytes;
}

// More than was sent is nobody's harm: who says so may have been counted out before.
void Flow::done(std::size_t tensors) {
  while (tensors > 0 && !sent_.empty()) {
    auto& [left, bytes] = sent_.front();
    const std::size_t over = std::min(left, tensors);
    left -= over;
    tensors -= over;
    if (left > 0) return;
    bytes_ -= bytes;
    sent_.pop_front();
  }
}

void Flow::open() {
  open_ = true;
  sent_.clear();
  bytes_ = 0;
}

}  // namespace horo
