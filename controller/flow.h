// Flow: what of one process set is on its way, and what had better wait meanwhile. What is released is run, in order,
// by the lanes of all members, so what comes to be ready later can only go first if not too much was released before
// it. After ByteScheduler (SOSP 2019): a credit of bytes, and the rest by priority.
//
// What has the greatest priority that was heard of in the set waits for nothing: where all are equal, nothing does.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <utility>

#include "horo/base/types.h"

namespace horo {

class Flow {
 public:
  // Kinds that have a priority: what moves nothing, or goes its own way, never waits.
  static bool has_priority(CollectiveKind kind);

  void add_priority(std::int32_t priority);
  // Not all priorities are equal.
  bool is_ranked() const { return !open_ && least_ < greatest_; }
  // Whether it waits, while the members have so much to do. Never where nothing is on its way.
  bool must_wait(std::int32_t priority, std::size_t credit_bytes) const;

  // Releases of so many tensors go out; that of as many is over, in any pieces.
  void released(std::size_t tensors, std::size_t bytes);
  void finished(std::size_t tensors);
  // Nothing waits from now on.
  void stop_holding();

 private:
  bool has_priorities_ = false;
  bool open_ = false;
  std::int32_t least_ = 0;
  std::int32_t greatest_ = 0;
  std::size_t bytes_ = 0;
  std::deque<std::pair<std::size_t, std::size_t>> unfinished_;  // tensors not over, and their bytes; the oldest first
};

}  // namespace horo
