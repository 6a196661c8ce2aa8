#include "tools/horo/run/owner_watch.h"

#include <chrono>
#include <utility>

#include "horo/base/thread.h"
#include "ring/os/backoff.h"

namespace horo::tools {

OwnerWatch::OwnerWatch(struct ev_loop* loop, OwnerPage page, std::function<void()> on_death)
    : loop_(loop), page_(std::move(page)), on_death_(std::move(on_death)) {
  ev_async_init(&died_, [](struct ev_loop*, ev_async* w, int) { static_cast<OwnerWatch*>(w->data)->on_death_(); });
  died_.data = this;
  ::ev_async_start(loop_, &died_);
  thread_ = start_thread("horo owner", [this] {
    if (wait_for_death(page_.word(), is_cancelled_)) ::ev_async_send(loop_, &died_);
    is_over_ = true;
  });
}

// A thread that is about to sleep does not see one wake-up, so there is one after the other.
OwnerWatch::~OwnerWatch() {
  is_cancelled_ = true;
  while (!is_over_) {
    wake_waiter(page_.word());
    if (!is_over_) back_off(std::chrono::milliseconds(1));
  }
  thread_.join();
  ::ev_async_stop(loop_, &died_);
}

}  // namespace horo::tools
