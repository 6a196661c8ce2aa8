// Work: the handle of the collective of one tensor. It ends once, with an Outcome or a failure. The engine or a lane
// ends it; or a lane issues it: everything that is left to do is on a stream of a device, and the Work ends when that
// is done.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "controller/coordinator.h"
#include "horo/base/failure.h"
#include "horo/base/time.h"
#include "horo/base/timeline.h"
#include "ring/cuda/cuda_api.h"

namespace horo {

class DeviceEvent;
class DeviceLoan;
struct Item;

// The result of a Work, besides the out buffer of the caller.
struct Outcome {
  bool absent = false;                    // no member had a value; out was not written
  std::unique_ptr<std::byte[]> data;      // a result of variable size, if the caller passed no out
  std::shared_ptr<DeviceLoan> on_device;  // the same on a device (Submission::may_own_on_device())
  std::size_t bytes = 0;                  // of a result of variable size, in data, on_device or out
  // all_gather, all_to_all, gather at the root: rows from each member. scatter: the rows of this rank. add_set: the
  // number of the set. join: the member that joined last (rank in the set).
  std::vector<std::int64_t> counts;
};

inline constexpr std::uint32_t kMessagesLane = kTimelineMessages;

// Any thread may call the functions of the first group. Small, because each tensor in flight has one.
class Work {
 public:
  // lane: the number of the process set in whose lane it ends, or kMessagesLane.
  explicit Work(Key key, std::uint32_t lane = 0) : key_(key), lane_(lane) {}
  Key key() const { return key_; }
  std::uint32_t lane() const { return lane_; }
  bool is_message() const { return lane_ == kMessagesLane; }  // of a send_recv

  // Has ended. Looks at the device, if the Work was issued.
  bool finished() const;
  // Was issued, or has ended.
  bool is_issued() const { return state_.load(std::memory_order_acquire) != State::kRunning; }
  // Blocks until the Work has ended, or until `until` (false). Does not throw its failure.
  bool wait_until(TimePoint until) const;
  // Blocks until the Work was issued or has ended, or until `until` (false).
  bool wait_until_issued(TimePoint until) const;

  // ---- Any thread, when is_issued().

  // Throws the failure, or returns the outcome, which lives as long as the Work. If the Work has not ended, its results
  // are there for streams that wait for event().
  const Outcome& outcome() const;
  // Enqueues a copy of Outcome::on_device on a stream that has waited for the event. Throws std::invalid_argument:
  // there is no such result on this device; and std::runtime_error (CUDA).
  void copy_result(void* out, int device, CudaStream stream) const;
  // Complete when the device has done everything; null if the Work was not issued.
  const std::shared_ptr<const DeviceEvent>& event() const { return event_; }
  // After the end: the epoch in which it ended.
  std::uint32_t epoch() const { return epoch_; }

  // ---- The engine or a lane. One of them once, except that fail() may follow issue().

  void end_in(std::uint32_t epoch) noexcept { epoch_ = epoch; }  // before finish(), issue() or fail()

  void finish(Outcome outcome);
  void issue(Outcome outcome, std::shared_ptr<const DeviceEvent> event);
  // After issue(): no effect if the Work has ended.
  void fail(FailurePtr failure) const noexcept;
  // After issue(), the first half of fail(): the Work fails, and does not end before end_failed(), since the device may
  // still write its results. False: it ends without that. end_failed() has no effect then. A second call replaces the
  // failure.
  bool begin_failure(FailurePtr failure) const noexcept;
  void end_failed() const noexcept {
    if (std::exchange(is_failing_, false)) become(State::kEnded);
  }
  // Finishes the Works of all items without an outcome, then wakes the waiting threads: in most cases each thread once.
  static void finish_all(std::span<const Item> items) noexcept;
  // The same for issue().
  static void issue_all(std::span<const Item> items, const std::shared_ptr<const DeviceEvent>& event) noexcept;

 private:
  // kFailing: was issued, and will fail. Only the thread that has set it writes the failure, and ends the Work.
  enum class State : std::uint8_t { kRunning, kIssued, kFailing, kEnded };

  static void set_all(std::span<const Item> items, State state) noexcept;
  void become(State state) const noexcept;

  const Key key_;
  const std::uint32_t lane_;
  // What was written before a state is set can be read after it.
  mutable std::atomic<State> state_ = State::kRunning;
  std::uint32_t epoch_ = 0;
  std::shared_ptr<const DeviceEvent> event_;
  mutable FailurePtr failure_;
  mutable bool is_failing_ = false;  // of the thread that calls begin_failure() and end_failed()
  Outcome outcome_;
};

}  // namespace horo
