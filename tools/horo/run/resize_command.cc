#include "tools/horo/run/resize_command.h"

#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <iostream>
#include <string>
#include <vector>

#include "elastic/texts.h"
#include "horo/base/time.h"
#include "tools/horo/run/meant_job.h"
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

}  // namespace

int resize(const ResizeOptions& options) {
  const std::vector<std::string> folders = status_folders(std::getenv("XDG_RUNTIME_DIR"), ::geteuid());
  pid_t job = 0;
  try {
    job = meant_job(folders, options.job, "after the number of ranks");
  } catch (const NoJob& error) {
    return fail_resize(error.what());
  }
  const std::string request = std::string(kResizeRequest) + std::to_string(options.ranks) + "\n";
  const JobAnswer answer = ask_job(folders, job, request, Clock::now() + kResizePatience);
  const std::string name = "job " + std::to_string(job) + ": ";
  if (!answer.fault.empty()) return fail_resize(name + answer.fault);
  const std::string text = name + printable(answer.json.substr(1));
  if (answer.json.front() != kResized) return fail_resize(text);
  std::cout << text + "\n";
  return 0;
}

}  // namespace horo::tools
