// Work: the handle of the collective of one tensor. It ends once, by the engine or a lane, with an Outcome or a
// failure.
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

// The result of a Work, besides the out buffer of the caller.
struct Outcome {
  bool absent = false;                // no member had a value; out was not written
  std::unique_ptr<std::byte[]> data;  // a result of variable size, if the caller passed no out
  std::size_t bytes = 0;              // of a result of variable size, in data or in out
  // all_gather, all_to_all, gather at the root: rows from each member. scatter: the rows of this rank. add_set: the
  // number of the set. join: the member that joined last (rank in the set).
  std::vector<std::int64_t> counts;
};

// Any thread may call the functions of the first group. Small, because each tensor in flight has one.
class Work {
 public:
  explicit Work(Key key, bool is_message = false) : key_(key), is_message_(is_message) {}
  Key key() const { return key_; }
  bool is_message() const { return is_message_; }  // of a send_recv, which ends in the lane of messages

  bool finished() const;
  // Blocks until the Work has ended, or until `until` (false). Does not throw its failure.
  bool wait_until(TimePoint until) const;
  // After the end: throws the failure, or returns the outcome, which lives as long as the Work.
  const Outcome& outcome() const;

  // After the end: the epoch in which it ended.
  std::uint32_t epoch() const { return epoch_; }

  // ---- The engine or a lane, once.

  void end_in(std::uint32_t epoch) noexcept { epoch_ = epoch; }  // before finish() or fail()

  void finish(Outcome outcome);
  void fail(FailurePtr failure);
  // Finishes the Works of all items without an outcome, then wakes the waiting threads: in most cases each thread once.
  static void finish_all(std::span<const Item> items) noexcept;

 private:
  void end() noexcept;

  const Key key_;
  const bool is_message_;
  std::atomic<bool> finished_ = false;  // the members below are not written after it is set
  std::uint32_t epoch_ = 0;
  FailurePtr failure_;
  Outcome outcome_;
};

}  // namespace horo
