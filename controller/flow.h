// Flow: the released and unfinished data of one process set, and the decision which complete tensors wait for it. The
// lanes of all members run releases in order, so a tensor that becomes ready later can run earlier only if few bytes
// were released before it. After ByteScheduler (SOSP 2019): a credit of unfinished bytes, and the rest by priority.
//
// A tensor with the greatest priority of the set so far never waits. Where all priorities are equal, none waits.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <utility>

#include "horo/base/types.h"

namespace horo {

class Flow {
 public:
  // False for kinds that move no data or do not run on the set's lane: they never wait.
  static bool has_priority(CollectiveKind kind);

  // Records the priority of a complete tensor.
  void add_priority(std::int32_t priority);
  // True if the recorded priorities differ, and stop_holding() was not called.
  bool is_ranked() const { return !is_open_ && least_ < greatest_; }
  // True if a tensor with this priority waits: it is below the greatest, and at least credit_bytes are unfinished.
  // False if nothing is unfinished.
  bool must_wait(std::int32_t priority, std::size_t credit_bytes) const;

  // Tensors were released together.
  void released(std::size_t tensors, std::size_t bytes);
  // This number of released tensors has finished, oldest first. A number above that of unfinished tensors is ignored.
  void finished(std::size_t tensors);
  // No tensor waits from now on.
  void stop_holding();

 private:
  bool has_priorities_ = false;
  bool is_open_ = false;
  std::int32_t least_ = 0;
  std::int32_t greatest_ = 0;
  std::size_t bytes_ = 0;                                       // of unfinished_
  std::deque<std::pair<std::size_t, std::size_t>> unfinished_;  // tensors and bytes of each release, oldest first
};

}  // namespace horo
