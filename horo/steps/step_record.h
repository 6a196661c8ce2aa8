// StepRecord: where the wall time of one step of this rank went. A step lasts from one step end to the next. Its bars
// add up to its length exactly, in nanoseconds. docs/scaling.md defines them.
#pragma once

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "horo/base/time.h"

namespace horo {

// The parts of a step. Up to kBetween the training thread does something of its own; from kSkew on it waits for horo.
enum class Bar : std::uint8_t {
  kInput,
  kForward,
  kBackward,
  kAfterBackward,
  kOptimizer,
  kCheckpoint,
  kBetween,
  kSkew,
  kAgreement,
  kTransfer,
  kCopies,
  kCommit,
  kHandOver,
  kMembership,
};
inline constexpr std::size_t kBars = 14;

// By Bar: the names in Python, JSON and documents.
inline constexpr std::array<std::string_view, kBars> kBarNames{
    "input", "forward",   "backward", "after_backward", "optimizer", "checkpoint", "between",
    "skew",  "agreement", "transfer", "copies",         "commit",    "hand_over",  "membership"};

using Bars = std::array<std::chrono::nanoseconds, kBars>;

constexpr std::size_t index_of(Bar bar) {
  return static_cast<std::size_t>(bar);
}
constexpr std::uint32_t bit_of(Bar bar) {
  return std::uint32_t{1} << index_of(bar);
}
// The bars of waits are known without marks of the caller, and so is kBetween.
inline constexpr std::uint32_t kKnownWithoutMarks = 0x3fff & ~(bit_of(Bar::kBetween) - 1);

// A figure of StepRecord that this rank cannot have: neither zero nor a guess.
inline constexpr std::int64_t kNotKnown = -1;

// The flags of a StepRecord.
inline constexpr std::uint32_t kEstimatedWait = 1;  // its wait is that of DDP, which waits outside of horo's calls
inline constexpr std::uint32_t kTooManyWaits = 2;   // waits beyond the most that are kept are in the bars around them
inline constexpr std::uint32_t kJobsForgotten = 4;  // jobs beyond the most that are kept count as hand-over
inline constexpr std::uint32_t kDeviceTime = 8;     // its times are those of the stream of a device
// These are not known: its times are those of the host. Where the host was ahead of the device by then, the step has no
// length, and its time is that of the next one.
inline constexpr std::uint32_t kNoDeviceTime = 16;

// Of the ranks that were ready last: how much of this rank's skew each has caused. The largest first; rank -1: none.
struct LateRank {
  std::int32_t rank = -1;
  std::chrono::nanoseconds skew{};
};

// Times are of the monotonic clock of this host.
struct StepRecord {
  static constexpr std::size_t kLateRanks = 3;  // further ranks are in the bar alone

  std::uint64_t number = 0;  // from 1
  std::uint64_t stream = 0;  // of the optimizer whose round it ends last; 0: not of an optimizer
  TimePoint begin, end;
  Bars bars{};
  // Beside the bars, not part of their sum. kNotKnown: not known. What the kernel counts (cpu_ns, run_queue_ns,
  // switches) is that since the last step that has it: Steps::kUsagePeriod.
  std::int64_t hidden_transfer_ns = 0;  // of lanes, outside of the waits
  std::int64_t hidden_copies_ns = 0;
  std::int64_t gc_ns = kNotKnown;         // garbage collections of the training thread
  std::int64_t cpu_ns = kNotKnown;        // of the training thread
  std::int64_t run_queue_ns = kNotKnown;  // in which the training thread was ready to run and had no core
  std::int64_t samples = kNotKnown;
  std::int64_t work = kNotKnown;  // elements of the batches
  std::int32_t switches = -1;     // involuntary ones, of the training thread
  std::uint32_t known = 0;        // bits by Bar; a bar that is not known is 0
  std::uint32_t epoch = 0;        // of the last job
  std::uint32_t flags = 0;
  std::array<std::int32_t, kLateRanks> late_ranks{-1, -1, -1};
  std::array<std::chrono::nanoseconds, kLateRanks> late_skews{};
};
static_assert(sizeof(StepRecord) <= 264);

}  // namespace horo
