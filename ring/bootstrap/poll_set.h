// The descriptors of one call of poll(), each with the function to call when it is ready.
#pragma once

#include <poll.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <functional>
#include <utility>
#include <vector>

#include "horo/base/time.h"

namespace horo {

class PollSet {
 public:
  // A descriptor below 0 is never ready.
  void add(int fd, short events, std::function<void()> on_ready) {
    polls_.push_back({fd, events, 0});
    on_ready_.push_back(std::move(on_ready));
  }

  // Sleeps until a descriptor is ready or the timeout has passed, then calls the functions of the descriptors that are
  // ready, in the order of add(). A function may close descriptors whose functions were added before it.
  void poll_once(Duration timeout) {
    const auto wait = std::chrono::ceil<std::chrono::milliseconds>(std::max(timeout, Duration::zero()));
    ::poll(polls_.data(), polls_.size(), static_cast<int>(wait.count()));
    for (std::size_t i = 0; i < polls_.size(); ++i) {
      if (polls_[i].revents != 0) on_ready_[i]();
    }
  }

 private:
  std::vector<pollfd> polls_;
  std::vector<std::function<void()>> on_ready_;
};

}  // namespace horo
