// The split of a wait. While the training thread waits, either the lane that it waits for runs a collective, and the
// phases of that tell what the wait is for; or the lane waits for the release of its next one: until the last rank was
// ready (skew, for that rank), until the release came (agreement), and until the lane began (hand-over). What follows
// the last collective is the time until the thread runs again (hand-over). Pure; integers that add up.
#pragma once

#include <cstdint>
#include <limits>
#include <span>

#include "horo/steps/job_times.h"
#include "horo/steps/step_record.h"

namespace horo {

inline constexpr std::uint32_t kAllLanes = std::numeric_limits<std::uint32_t>::max() - 1;

// Of the training thread, for works of one lane or of several.
struct StepWait {
  TimePoint begin, end;
  std::uint32_t lane = kAllLanes;
  bool has_ended = true;      // the works have; else the thread gave up, or will wait again
  bool is_on_device = false;  // the stream of a device waits for results that another stream makes: transfer
};

// Takes the time in which this rank waited for others, and the parts of the wait, both in pieces.
class SkewByRank {
 public:
  virtual ~SkewByRank() = default;
  virtual void add(std::int32_t rank, Duration skew) = 0;
  // In their order, without a gap.
  virtual void part(Bar /*bar*/, TimePoint /*begin*/, TimePoint /*end*/) {}
};

// Adds the wait to the bars from kSkew on. Their sum grows by exactly its length. jobs: by begin, also those of other
// lanes. frozen: spans that do not overlap, by begin. late: the rank -1 stands for one that is not known.
void split_wait(const StepWait& wait, std::span<const JobTime> jobs, std::span<const TimeSpan> frozen, Bars& bars,
                SkewByRank& late);

// How long the span overlaps with the waits, which are ascending and do not overlap one another.
Duration overlap(const TimeSpan& span, std::span<const StepWait> waits);

}  // namespace horo
