// Work: the handle of a tensor's collective in flight. Finished once, by the engine or a lane; the error travels whole.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "controller/coordinator.h"
#include "horo/base/failure.h"
#include "horo/base/time.h"

namespace horo {

struct Item;

// What a Work ended with, besides the caller's out buffer.
struct Outcome {
  bool absent = false;                // no member had a value: out was not written
  std::unique_ptr<std::byte[]> data;  // a result of varying size, where the caller gave no out for it
  std::size_t bytes = 0;              // of a result of varying size, there or in out
  // all_gather, all_to_all, gather at the root: rows from each member. scatter: the rows of this rank. add_set: the
  // number of the set. join: who joined last, by its rank in the set.
  std::vector<std::int64_t> counts;
};

// Any thread may call anything, except finish() and fail(). Small, since there are as many as tensors in flight.
class Work {
 public:
  explicit Work(Key key) : key_(key) {}
  Key key() const { return key_; }

  bool finished() const;
  // Blocks until it ended or `until` has come; true if it ended. Does not look at the error.
  bool wait_until(TimePoint until) const;
  // After the end: throws what made it fail, or returns the outcome, which lives as long as the Work.
  const Outcome& outcome() const;

  // Called once.
  void finish(Outcome outcome);
  void fail(FailurePtr failure);
  // Finishes the Works of all items without an outcome, then wakes the waiting threads: in most cases each thread once.
  static void finish_all(std::span<const Item> items) noexcept;

 private:
  void end() noexcept;

  const Key key_;
  std::atomic<bool> finished_ = false;  // the two below are written before it is set, and never after
  FailurePtr failure_;
  Outcome outcome_;
};

}  // namespace horo
