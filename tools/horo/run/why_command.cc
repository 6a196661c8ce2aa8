#include "tools/horo/run/why_command.h"

#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <iostream>
#include <string>
#include <vector>

#include "horo/base/time.h"
#include "tools/horo/run/job_waits.h"
#include "tools/horo/run/meant_job.h"
#include "tools/horo/run/status_folder.h"
#include "tools/horo/run/status_query.h"
#include "tools/horo/run/status_server.h"
#include "tools/horo/run/why_text.h"

namespace horo::tools {
namespace {

constexpr std::chrono::seconds kWhyPatience{10};

int fail_why(const std::string& text) {
  std::cerr << "horo why: " + text + "\n";
  return 1;
}

}  // namespace

int why(const WhyOptions& options) {
  const std::vector<std::string> folders = status_folders(std::getenv("XDG_RUNTIME_DIR"), ::geteuid());
  try {
    const pid_t job = meant_job(folders, options.job, "after why");
    const JobAnswer answer = ask_job(folders, job, std::string(kWhyRequest), Clock::now() + kWhyPatience);
    const std::string name = "job " + std::to_string(job) + ": ";
    if (!answer.fault.empty()) return fail_why(name + answer.fault);
    const JobWaits waits = waits_from_json(answer.json);
    std::cout << (options.json ? answer.json + "\n" : why_text(waits)) << std::flush;
    return is_explained(waits) ? 0 : 1;
  } catch (const NoJob& error) {
    return fail_why(error.what());
  } catch (const std::runtime_error& error) {
    return fail_why(std::string("the answer of the job cannot be read: ") + error.what());
  }
}

}  // namespace horo::tools
