// SubmissionQueue: the batch that callers fill and the engine takes, and whether the engine has to be woken for it.
#pragma once

#include <cstddef>
#include <utility>

#include "horo/tensors/submission_batch.h"

namespace horo {

// Has no lock of its own: the tensor table calls it under its mutex.
class SubmissionQueue {
 public:
  // Single submissions of this many bytes in total are flushed without waiting for more.
  static constexpr std::size_t kFlushBytes = 1 << 20;

  SubmissionBatch& batch() { return batch_; }
  // Neither counts the events of add_silent().
  std::size_t size() const { return batch_.events.size() - silent_; }
  bool empty() const { return size() == 0; }

  // Adds an event that the engine takes with the next one: the queue counts as empty with it alone.
  void add_silent(Event event) {
    batch_.events.push_back(std::move(event));
    ++silent_;
  }

  // Adds a submission of a tensor that is in no active plan.
  void add(Item item, bool lost = false) {
    const std::size_t bytes = item.bytes;
    batch_.report(std::move(item), lost);
    single_bytes_ += bytes;
  }
  // The queue as it is now, for roll_back().
  struct Mark {
    std::size_t events = 0, items = 0, plans = 0, single_bytes = 0;
  };
  Mark mark() const { return {batch_.events.size(), batch_.items.size(), batch_.plans.size(), single_bytes_}; }
  void roll_back(const Mark& mark) noexcept;
  // What was added since then was submitted at this time. Reads no clock if nothing was.
  void stamp(const Mark& mark, TimePoint (*now)());

  // Takes everything; the batch has no declarations.
  SubmissionBatch take();
  void clear() noexcept {
    batch_ = {};
    silent_ = 0;
  }

  // A caller waits for a queued submission, so the engine must take the queue at once. True: gathering ends now.
  bool request_flush() noexcept { return !empty() && !std::exchange(flush_requested_, true); }
  bool flush_requested() const { return flush_requested_; }
  bool is_large() const { return single_bytes_ >= kFlushBytes; }

  // The engine is about to sleep. False: the queue is not empty.
  bool begin_sleep() noexcept { return engine_sleeps_ = empty(); }
  // True once for each sleep of the engine: the caller must wake it. Submissions while the engine is awake need no
  // wake-up, because it polls the queue before it sleeps.
  bool needs_wake() noexcept { return !empty() && std::exchange(engine_sleeps_, false); }

 private:
  SubmissionBatch batch_;
  std::size_t silent_ = 0;        // events of add_silent()
  std::size_t single_bytes_ = 0;  // of the items that add() took
  bool flush_requested_ = false;
  bool engine_sleeps_ = true;  // and no caller has woken it
};

}  // namespace horo
