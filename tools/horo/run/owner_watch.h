// OwnerWatch: a thread of the guard that waits for the death of the holder of an owner word.
#pragma once

#include <ev.h>

#include <atomic>
#include <functional>
#include <thread>

#include "elastic/owner_page.h"

namespace horo::tools {

class OwnerWatch {
 public:
  // on_death: called once from the loop when the thread that held the word has ended without releasing it, which is no
  // proof that its process ends. Throws std::system_error if no thread can be started.
  OwnerWatch(struct ev_loop* loop, OwnerPage page, std::function<void()> on_death);
  ~OwnerWatch();
  OwnerWatch(const OwnerWatch&) = delete;
  OwnerWatch& operator=(const OwnerWatch&) = delete;

 private:
  struct ev_loop* const loop_;
  const OwnerPage page_;
  const std::function<void()> on_death_;
  ev_async died_{};
  std::atomic<bool> is_cancelled_ = false, is_over_ = false;
  std::jthread thread_;
};

}  // namespace horo::tools
