#include "tools/horo/run/meant_job.h"

#include <chrono>

#include "horo/base/time.h"
#include "tools/horo/run/job_status.h"
#include "tools/horo/run/status_query.h"

namespace horo::tools {
namespace {

constexpr std::chrono::seconds kJobPatience{5};

std::vector<pid_t> jobs_meant(const std::vector<std::string>& folders, std::optional<int> job) {
  std::vector<pid_t> jobs;
  for (const JobAnswer& answer : ask_jobs(folders, Clock::now() + kJobPatience)) {
    bool is_meant = !job || *job == answer.job;
    if (!is_meant && answer.fault.empty()) {
      try {
        is_meant = *job == status_from_json(answer.json).process;
      } catch (const std::runtime_error&) {  // of another version: known by its guard alone
      }
    }
    if (is_meant) jobs.push_back(answer.job);
  }
  return jobs;
}

}  // namespace

pid_t meant_job(const std::vector<std::string>& folders, std::optional<int> job, const std::string& place) {
  const std::vector<pid_t> jobs = jobs_meant(folders, job);
  if (jobs.empty()) {
    throw NoJob(job ? "no job " + std::to_string(*job) + " of this user runs on this host"
                    : "no job of this user runs on this host");
  }
  if (jobs.size() == 1) return jobs.front();
  std::string text;
  for (const pid_t one : jobs) text += (text.empty() ? "" : ", ") + std::to_string(one);
  throw NoJob("several jobs run: expected one of " + text + " " + place + " (horo status)");
}

}  // namespace horo::tools
