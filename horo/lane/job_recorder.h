// JobRecorder: writes down when a lane does what with a job: for the accounting of steps, and, with names, in the
// timeline. With both off it does nothing.
#pragma once

#include <optional>

#include "horo/base/timeline.h"
#include "horo/lane/job.h"
#include "horo/steps/job_times.h"

namespace horo {

// Each outlives the recorder, or is null: off.
struct RecordContext {
  Timeline* timeline = nullptr;
  JobTimes* times = nullptr;
  bool retains = false;  // of an elastic job: the unpack phase is the commit
};

// The thread that runs the lane's tasks.
class JobRecorder {
 public:
  explicit JobRecorder(const RecordContext& context);
  ~JobRecorder();
  JobRecorder(const JobRecorder&) = delete;
  JobRecorder& operator=(const JobRecorder&) = delete;

  void begin(const Job& job);
  // The phase ends now.
  void mark(Phase phase);
  // On devices, by this algorithm.
  void moved_by(std::string_view algorithm, const Traffic& traffic);
  // The job has ended.
  void end(const Job& job);

 private:
  void begin_in_timeline(const Job& job, TimePoint now);

  const RecordContext context_;
  bool is_timed_ = false;              // the job that runs
  std::optional<TimelineJob> record_;  // of the job that runs
};

}  // namespace horo
