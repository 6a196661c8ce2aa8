#include "tools/horo/run/service_process.h"

#include <poll.h>
#include <signal.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <utility>

#include "tools/horo/run/verdict.h"

namespace horo::tools {
namespace {

constexpr double kFirstPauseSeconds = 0.02;
constexpr double kLongestPauseSeconds = 1;
constexpr double kStartSeconds = 10;  // until the first answer of a process
constexpr double kSteadySeconds = 5;  // a process that ran for so long is started again at once

}  // namespace

ServiceProcess::ServiceProcess(struct ev_loop* loop, Service service)
    : loop_(loop),
      service_(std::move(service)),
      again_(loop, [this] { start_now(); }),
      stopped_(loop, [this] { give_up("is stopped"); }),
      silent_(loop, [this] { give_up("does not answer"); }),
      pause_s_(kFirstPauseSeconds) {
  start_now();
}

ServiceProcess::~ServiceProcess() {
  if (pid_ > 0) signal_group(pid_, SIGTERM);
}

void ServiceProcess::await_end(std::chrono::milliseconds limit) const {
  const int fd = pid_ > 0 ? static_cast<int>(::syscall(SYS_pidfd_open, pid_, 0)) : -1;
  if (fd < 0) return;
  pollfd ended{fd, POLLIN, 0};
  ::poll(&ended, 1, static_cast<int>(limit.count()));
  ::close(fd);
}

void ServiceProcess::end_within(std::chrono::milliseconds limit) {
  if (pid_ > 0) signal_group(pid_, SIGTERM);
  await_end(limit);
}

void ServiceProcess::start_now() {
  const auto destinations = [this] {
    RankStream::Destinations ways;
    ways.prefix = "horo " + service_.name + ": ";
    ways.writer = service_.output;
    ways.end = [] {};
    return ways;
  };
  Child child = start(service_.program());
  pid_ = child.pid;
  started_s_ = ::ev_now(loop_);
  output_ = std::make_unique<RankStream>(loop_, std::move(child.output), destinations());
  errors_ = std::make_unique<RankStream>(loop_, std::move(child.errors), destinations());
  ended_ = std::make_unique<ChildWatch>(
      loop_, pid_, [this](int status) { on_end(status); },
      [this](bool is_stopped) { is_stopped ? stopped_.set(service_.patience_s) : stopped_.stop(); });
  if (service_.answers) silent_.set(std::max(service_.patience_s, kStartSeconds));
  if (service_.started) service_.started();
}

void ServiceProcess::answered() {
  if (pid_ > 0 && service_.answers) silent_.set(service_.patience_s);
}

// It is started again when its end is seen.
void ServiceProcess::give_up(const std::string& why) {
  service_.say("the " + service_.name + " of this host " + why + ": it is killed");
  signal_group(pid_, SIGKILL);
}

void ServiceProcess::on_end(int status) {
  pid_ = 0;
  stopped_.stop();
  silent_.stop();
  if (::ev_now(loop_) - started_s_ > kSteadySeconds) pause_s_ = kFirstPauseSeconds;
  service_.say("the " + service_.name + " of this host ended (" + status_text(status) + "): it is started again");
  again_.set(pause_s_);
  pause_s_ = std::min(pause_s_ * 2, kLongestPauseSeconds);
}

}  // namespace horo::tools
