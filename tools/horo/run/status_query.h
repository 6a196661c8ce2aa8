// Questions to the guards of running jobs.
#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

#include "horo/base/time.h"

namespace horo::tools {

struct JobAnswer {
  pid_t job = 0;
  std::string json;   // see job_status.h
  std::string fault;  // why there is no document: the job runs, but does not answer
};

// Sends the request to the job with this guard, whose answer is returned as its json. A fault: there is no such job in
// these folders, or it does not answer.
JobAnswer ask_job(const std::vector<std::string>& folders, pid_t job, const std::string& request, TimePoint until);

// Asks the jobs whose sockets are in these folders. Sockets of jobs that have ended are removed. Blocks until each has
// answered, at most until `until`. Ascending by job.
std::vector<JobAnswer> ask_jobs(const std::vector<std::string>& folders, TimePoint until);

}  // namespace horo::tools
