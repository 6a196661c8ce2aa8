#include "tools/horo/run/resize_command.h"

#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <iostream>
#include <stdexcept>
#include <string>
#include <vector>

#include "elastic/texts.h"
#include "horo/base/time.h"
#include "tools/horo/run/job_status.h"
#include "tools/horo/run/status_folder.h"
#include "tools/horo/run/status_query.h"
#include "tools/horo/run/status_server.h"

namespace horo::tools {
namespace {

constexpr std::chrono::seconds kResizePatience{5};

int fail_resize(const std::string& text) {
  std::cerr << "horo resize: " + text + "\n";
  return 1;
}

// The guards of the jobs that the user means.
std::vector<pid_t> meant_jobs(const std::vector<std::string>& folders, const ResizeOptions& options) {
  std::vector<pid_t> jobs;
  for (const JobAnswer& answer : ask_jobs(folders, Clock::now() + kResizePatience)) {
    bool is_meant = !options.job || *options.job == answer.job;
    if (!is_meant && answer.fault.empty()) {
      try {
        is_meant = *options.job == status_from_json(answer.json).process;
      } catch (const std::runtime_error&) {  // of another version: known by its guard alone
      }
    }
    if (is_meant) jobs.push_back(answer.job);
  }
  return jobs;
}

}  // namespace

int resize(const ResizeOptions& options) {
  const std::vector<std::string> folders = status_folders(std::getenv("XDG_RUNTIME_DIR"), ::geteuid());
  const std::vector<pid_t> jobs = meant_jobs(folders, options);
  if (jobs.empty()) {
    return fail_resize(options.job ? "no job " + std::to_string(*options.job) + " of this user runs on this host"
                                   : "no job of this user runs on this host");
  }
  if (jobs.size() > 1) {
    std::string text;
    for (const pid_t job : jobs) text += (text.empty() ? "" : ", ") + std::to_string(job);
    return fail_resize("several jobs run: expected one of " + text + " after the number of ranks (horo status)");
  }
  const std::string request = std::string(kResizeRequest) + std::to_string(options.ranks) + "\n";
  const JobAnswer answer = ask_job(folders, jobs.front(), request, Clock::now() + kResizePatience);
  const std::string name = "job " + std::to_string(jobs.front()) + ": ";
  if (!answer.fault.empty()) return fail_resize(name + answer.fault);
  const std::string text = name + printable(answer.json.substr(1));
  if (answer.json.front() != kResized) return fail_resize(text);
  std::cout << text + "\n";
  return 0;
}

}  // namespace horo::tools
