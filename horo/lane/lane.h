// Lane: runs the collectives of one process set, one after the other, in the order in which the coordinator released
// them. A lane has its own thread, groups and buckets, so lanes do not wait for one another.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <thread>
#include <vector>

#include "horo/lane/collective_runner.h"
#include "horo/lane/task_queue.h"

namespace horo {

// Called by the thread that runs a task of the lane. Neither may block.
struct LaneCallbacks {
  // Called at most once, with the failure that ended the lane (PeerLost, an error of a device, or a bug). The lane runs
  // no task after it, and leaves the Works of the remaining tasks to the engine.
  std::function<void(FailurePtr)> failed;
  // take_done() has a new value.
  std::function<void()> done;
};

// The engine's thread, except where a function says more.
class Lane {
 public:
  // `channel` belongs to this lane alone.
  Lane(const LaneContext& context, Members members, std::uint32_t channel, LaneCallbacks callbacks);
  ~Lane();

  // The lane's queue. Any thread may call its functions for any thread.
  TaskQueue& tasks() { return tasks_; }
  // Packs the plan when no job or ending is queued. Any thread.
  void prepack(FilledPlan filled);
  // Returns when no buffer is in use and none will be. If a collective may be in flight, the transport must have been
  // aborted before.
  // Ends the process if a call to a device does not return.
  void stop();
  // The Works in flight have failed: what is on devices may end without a result. Follows stop(), unless join() does.
  void works_have_failed() { runner_.works_have_failed(); }
  // Blocks until nothing of the lane is on devices any more, or until `until`. Follows works_have_failed().
  void wait_until_closed(TimePoint until) { runner_.wait_until_closed(until); }
  // Returns when the thread has ended; no callback is called after it. Follows stop(); Works that devices have not
  // ended have failed before, unless the queue is drained. Ends the process if NCCL does not return.
  void join();
  // Number of tensors in jobs with Release::reports_done that have ended since the last call.
  std::uint32_t take_done() { return done_.exchange(0, std::memory_order_relaxed); }
  // Continues with the residuals of a drained lane of the same set. Precedes the first job.
  void take_residuals(Lane& drained) { runner_.take_residuals(drained.runner_); }

  // The same for the buffers of a lane that has ended.
  void take_memory(Lane& ended) { runner_.take_memory(ended.runner_); }

  // ---- Follow join(), in an elastic job.

  // The number of the last collective that is complete on this rank.
  std::uint64_t completed() const { return runner_.delivery().completed(); }
  // Delivers what the commit in progress covers if is_done(). Ends the works that the coordinator has ended, except
  // those of rounds, which run again. Everything else stays in flight.
  void settle(const std::function<bool(const Commit&)>& is_done);

  // ---- Any thread.

  const std::vector<int>& members() const { return runner_.members(); }
  // The group of all members, for memory.
  std::shared_ptr<Group> group() const { return runner_.group(); }

 private:
  void run(const Task& task);
  [[noreturn]] void end_process(const char* what, const char* since) const;

  const LaneCallbacks callbacks_;
  std::atomic<std::uint32_t> done_ = 0;  // relaxed: orders nothing
  CollectiveRunner runner_;
  TaskQueue tasks_;
  std::jthread thread_;
};

}  // namespace horo
