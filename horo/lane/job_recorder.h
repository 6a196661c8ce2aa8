// JobRecorder: writes down in the timeline what a lane does with a job. Off, it does nothing.
#pragma once

#include <optional>

#include "horo/base/timeline.h"
#include "horo/lane/job.h"

namespace horo {

// The thread that runs the lane's tasks. The timeline outlives it.
class JobRecorder {
 public:
  explicit JobRecorder(Timeline* timeline) : timeline_(timeline) {}

  void begin(const Job& job);
  // The phase ends now.
  void mark(Phase phase) {
    if (record_) record_->ends[static_cast<std::size_t>(phase)] = Clock::now();
  }
  // The job has ended.
  void end(const Job& job);

 private:
  Timeline* const timeline_;           // null: off
  std::optional<TimelineJob> record_;  // of the job that runs
};

}  // namespace horo
