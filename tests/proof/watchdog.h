// Ends the process if a test does not end in time.
#pragma once

#include <chrono>
#include <functional>
#include <string>
#include <thread>

#include "horo/base/mutex.h"

namespace horo::proof {

// Unless it is destroyed within `limit`, prints report() to stderr and aborts the process. report() is called in a
// thread of the watchdog.
class Watchdog {
 public:
  Watchdog(std::chrono::seconds limit, std::function<std::string()> report);
  ~Watchdog();
  Watchdog(const Watchdog&) = delete;
  Watchdog& operator=(const Watchdog&) = delete;

 private:
  void watch();

  const std::chrono::seconds limit_;
  const std::function<std::string()> report_;
  Mutex mutex_;
  CondVar changed_;
  bool is_over_ GUARDED_BY(mutex_) = false;
  std::jthread thread_;
};

}  // namespace horo::proof
