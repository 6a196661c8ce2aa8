#include "horo/base/thread.h"

#include <pthread.h>
#include <signal.h>

#include <utility>

namespace horo {
namespace {

// A new thread inherits the mask of the one that starts it.
class BlockedSignals {
 public:
  BlockedSignals() {
    sigset_t all;
    ::sigfillset(&all);
    ::pthread_sigmask(SIG_SETMASK, &all, &before_);
  }
  ~BlockedSignals() { ::pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
  BlockedSignals(const BlockedSignals&) = delete;
  BlockedSignals& operator=(const BlockedSignals&) = delete;

 private:
  sigset_t before_;
};

}  // namespace

std::jthread start_thread(const char* name, std::function<void()> body) {
  const BlockedSignals blocked;
  return std::jthread([name, body = std::move(body)] {
    ::pthread_setname_np(::pthread_self(), name);
    body();
  });
}

}  // namespace horo
