#include "tests/proof/watchdog.h"

#include <cstdio>
#include <cstdlib>
#include <utility>

#include "horo/base/time.h"

namespace horo::proof {

Watchdog::Watchdog(std::chrono::seconds limit, std::function<std::string()> report)
    : limit_(limit), report_(std::move(report)), thread_([this] { watch(); }) {}

Watchdog::~Watchdog() {
  MutexLock lock(mutex_);
  is_over_ = true;
  changed_.notify_all();
}

void Watchdog::watch() {
  const TimePoint until = Clock::now() + limit_;
  MutexLock lock(mutex_);
  while (!is_over_ && Clock::now() < until) changed_.wait_until(mutex_, until);
  if (is_over_) return;
  std::fputs(("proof: no end within " + std::to_string(limit_.count()) + " s: " + report_()).c_str(), stderr);
  std::abort();
}

}  // namespace horo::proof
