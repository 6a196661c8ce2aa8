#include "horo/engine/ended_epochs.h"

#include <deque>
#include <exception>
#include <thread>
#include <utility>

#include "horo/base/mutex.h"
#include "horo/base/thread.h"
#include "ring/shm/arena.h"

namespace horo {
namespace {

// An allocation of a caller may outlive the epoch.
void free_now(std::unique_ptr<EpochState> ended) {
  const std::shared_ptr<Arena> arena = ended->links.arenas ? ended->links.arenas->own() : nullptr;
  const bool is_unused = arena && arena->end_epoch();
  ended.reset();
  if (is_unused && arena.use_count() > 1) arena->vacate_rest();
}

}  // namespace

// Any thread calls the functions.
class EndedEpochs::Freeing {
 public:
  // Without memory for a thread the caller frees the epoch.
  void free(std::unique_ptr<EpochState> epoch) noexcept {
    const MutexLock lock(mutex_);
    if (is_over_) return;
    try {
      if (!is_running_) {
        if (thread_.joinable()) thread_.join();  // it has ended
        thread_ = start_thread("horo free", [this] { free_all(); });
        is_running_ = true;
      }
      ended_.push_back(std::move(epoch));
    } catch (const std::exception&) {
    }
  }
  void end() {
    std::jthread last;
    {
      const MutexLock lock(mutex_);
      is_over_ = true;
      last = std::move(thread_);
    }
    if (last.joinable()) last.join();
  }

 private:
  void free_all() {
    while (true) {
      std::unique_ptr<EpochState> next;
      {
        const MutexLock lock(mutex_);
        is_running_ = !ended_.empty();
        if (!is_running_) return;
        next = std::move(ended_.front());
        ended_.pop_front();
      }
      free_now(std::move(next));
    }
  }

  Mutex mutex_;
  bool is_over_ GUARDED_BY(mutex_) = false, is_running_ GUARDED_BY(mutex_) = false;
  std::deque<std::unique_ptr<EpochState>> ended_ GUARDED_BY(mutex_);
  std::jthread thread_ GUARDED_BY(mutex_);
};

EndedEpochs::EndedEpochs() : freeing_(std::make_shared<Freeing>()) {}

EndedEpochs::~EndedEpochs() {
  freeing_->end();
}

std::shared_ptr<EpochState> EndedEpochs::own(std::unique_ptr<EpochState> epoch) const {
  return {epoch.release(),
          [freeing = freeing_](EpochState* ended) { freeing->free(std::unique_ptr<EpochState>(ended)); }};
}

}  // namespace horo
