// What the thread that writes a save and the callers of its Saver have in common.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <stdexcept>
#include <string>

#include "horo/base/mutex.h"

namespace horo::checkpoint {

// The save was given up by a caller. The text is the reason.
class GivenUp : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

class SaveControl {
 public:
  // Any thread. The first reason counts.
  void give_up(const std::string& reason) noexcept;
  // Throws GivenUp, if it was called.
  void check() const;
  // The same after so long a pause, or earlier.
  void pause(std::chrono::milliseconds time);

  std::atomic<std::uint64_t> bytes_done{0};  // orders nothing

 private:
  mutable Mutex mutex_;
  CondVar changed_;
  bool is_given_up_ GUARDED_BY(mutex_) = false;
  std::string reason_ GUARDED_BY(mutex_);
};

}  // namespace horo::checkpoint
