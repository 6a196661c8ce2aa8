#include "tools/horo/run/status_command.h"

#include <poll.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <iostream>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "horo/base/time.h"
#include "tools/horo/machine/descriptor.h"
#include "tools/horo/run/job_status.h"
#include "tools/horo/run/status_folder.h"
#include "tools/horo/run/status_query.h"
#include "tools/horo/run/status_text.h"

namespace horo::tools {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::chrono::seconds kPatience{5};
constexpr std::size_t kEventsOfTop = 8;

struct FoundJob {
  JobStatus status;
  std::string json;
};

struct Found {
  std::vector<FoundJob> jobs;
  std::vector<JobAnswer> silent;  // they run, but there is no valid answer
};

Found find(const std::vector<std::string>& folders, std::optional<int> wanted) {
  Found found;
  for (JobAnswer& answer : ask_jobs(folders, Clock::now() + kPatience)) {
    if (answer.fault.empty()) {
      try {
        JobStatus status = status_from_json(answer.json);
        if (!wanted || *wanted == status.job || *wanted == status.process)
          found.jobs.push_back({std::move(status), std::move(answer.json)});
        continue;
      } catch (const std::runtime_error& error) {
        answer.fault = error.what();
      }
    }
    found.silent.push_back(std::move(answer));
  }
  // Of a silent job only its guard's number is known, so without a match each of them may be the wanted one.
  if (wanted && !found.jobs.empty()) found.silent.clear();
  return found;
}

// That of the terminal, if there is one.
TextView view_of(const StatusOptions& options) {
  TextView view;
  view.is_top = options.is_top;
  if (options.is_top) view.events = kEventsOfTop;
  winsize size{};
  if (::isatty(1) != 1 || ::ioctl(1, TIOCGWINSZ, &size) != 0) return view;
  view.width = size.ws_col;
  if (!options.watch_s) return view;
  view.height = size.ws_row;
  const char *const none = std::getenv("NO_COLOR"), *const terminal = std::getenv("TERM");
  view.has_colours = (none == nullptr || *none == '\0') && terminal != nullptr && std::string_view(terminal) != "dumb";
  return view;
}

// The lines that fit, over what was there before.
std::string screen_of(const std::string& text, std::size_t height) {
  std::vector<std::string> lines;
  for (std::size_t begin = 0; begin < text.size();) {
    const std::size_t end = std::min(text.find('\n', begin), text.size());
    lines.push_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  if (height > 1 && lines.size() >= height) {
    const std::size_t left = lines.size() - (height - 2);
    lines.resize(height - 2);
    lines.push_back("(" + std::to_string(left) + " more lines)");
  }
  std::string screen = "\033[H";
  for (const std::string& line : lines) screen += line + "\033[K\n";
  return screen + "\033[J";
}

void print(const Found& found, const StatusOptions& options, bool is_list) {
  for (const JobAnswer& silent : found.silent) {
    std::cerr << "horo status: job " + std::to_string(silent.job) + ": " + silent.fault + "\n";
  }
  if (options.json) {
    Json all = {{"schema", kStatusSchema}, {"jobs", Json::array()}};
    for (const FoundJob& job : found.jobs) all["jobs"].push_back(Json::parse(job.json));
    std::cout << all.dump(options.watch_s ? -1 : 2) << std::endl;
    return;
  }
  const TextView view = view_of(options);
  std::string text;
  if (is_list) {
    std::vector<JobStatus> jobs;
    for (const FoundJob& job : found.jobs) jobs.push_back(job.status);
    text = list_of(jobs);
  } else {
    for (const FoundJob& job : found.jobs) text += text_of(job.status, view);
  }
  const bool is_screen = options.watch_s && ::isatty(1) == 1;
  std::cout << (is_screen ? screen_of(text, view.height) : text) << std::flush;
}

// Until the time has passed, or one of the jobs has ended.
void wait_for_change(const Found& found, double seconds) {
  std::vector<Descriptor> processes;
  std::vector<pollfd> ends;
  for (const FoundJob& job : found.jobs) {
    Descriptor process(static_cast<int>(::syscall(SYS_pidfd_open, job.status.job, 0)));
    if (!process.is_open()) continue;  // an old kernel; or it has ended, which the next question shows
    ends.push_back({process.get(), POLLIN, 0});
    processes.push_back(std::move(process));
  }
  ::poll(ends.data(), ends.size(), static_cast<int>(seconds * 1000));
}

int watch(const std::vector<std::string>& folders, const StatusOptions& options, Found found, bool is_list) {
  const bool is_screen = ::isatty(1) == 1 && !options.json;
  const std::optional<int> one = is_list ? options.job : std::optional<int>(found.jobs.front().status.job);
  while (!found.jobs.empty()) {
    print(found, options, is_list);
    if (!std::cout) return 0;
    if (!options.json && !is_screen) std::cout << std::endl;
    wait_for_change(found, *options.watch_s);
    found = find(folders, one);
    if (one) std::erase_if(found.silent, [&](const JobAnswer& silent) { return silent.job != *one; });
  }
  if (!found.silent.empty()) {
    print(found, options, is_list);
    return 1;
  }
  if (!options.json) std::cout << (one ? "job " + std::to_string(*one) + " has ended\n" : "all jobs have ended\n");
  return 0;
}

}  // namespace

int status(const StatusOptions& options) {
  const std::vector<std::string> folders = status_folders(std::getenv("XDG_RUNTIME_DIR"), ::geteuid());
  Found found = find(folders, options.job);
  const bool is_list = !options.job && found.jobs.size() + found.silent.size() > 1;
  if (!found.jobs.empty() && options.watch_s) return watch(folders, options, std::move(found), is_list);
  if (!found.jobs.empty() || options.json) print(found, options, is_list);
  if (!found.jobs.empty()) return 0;
  if (!found.silent.empty() && !options.json) print(found, options, false);
  if (found.silent.empty()) {
    std::cerr << "horo status: " +
                     (options.job ? "no job " + std::to_string(*options.job) + " of this user runs on this host"
                                  : std::string("no job of this user runs on this host")) +
                     "\n";
  }
  return 1;
}

int top(StatusOptions options) {
  if (!options.watch_s) options.watch_s = 1;
  options.is_top = true;
  return status(options);
}

}  // namespace horo::tools
