#include "horo/lane/task_queue.h"

#include <cfenv>
#include <utility>

namespace horo {
namespace {

constexpr std::chrono::milliseconds kDrainTurn{100}, kWatchTurn{20};

// Sets the default floating-point environment: results must not depend on modes (flush-to-zero, rounding) of the
// thread.
class DefaultFloatEnvironment {
 public:
  DefaultFloatEnvironment() {
    std::fegetenv(&before_);
    std::fesetenv(FE_DFL_ENV);
  }
  ~DefaultFloatEnvironment() { std::fesetenv(&before_); }
  DefaultFloatEnvironment(const DefaultFloatEnvironment&) = delete;
  DefaultFloatEnvironment& operator=(const DefaultFloatEnvironment&) = delete;

 private:
  std::fenv_t before_;
};

}  // namespace

void TaskQueue::push(Job job) {
  {
    MutexLock lock(mutex_);
    released_.emplace_back(std::move(job));
    if (sleepers_ > 0 && !running_) may_run_.notify_all();
    if (pollers_ > 0 && is_next_short()) return;
  }
  changed_.notify_all();
}

bool TaskQueue::push(const Ending& ending) {
  MutexLock lock(mutex_);
  if (is_drained_) return false;
  released_.emplace_back(ending);
  wake_all();
  return true;
}

void TaskQueue::push(FilledPlan filled) {
  MutexLock lock(mutex_);
  filled_.push_back(std::move(filled));
  changed_.notify_all();
}

void TaskQueue::close(std::function<void()> drained) {
  MutexLock lock(mutex_);
  drained_ = std::move(drained);
  changed_.notify_all();
}

void TaskQueue::stop(const std::function<void()>& on_turn) {
  {
    MutexLock lock(mutex_);
    stopping_ = true;
    wake_all();
  }
  while (runs_until(Clock::now() + kDrainTurn)) on_turn();
}

bool TaskQueue::runs_until(TimePoint until) {
  MutexLock lock(mutex_);
  while (running_ && Clock::now() < until) changed_.wait_until(mutex_, until);
  return running_;
}

bool TaskQueue::wait_until_drained(const std::function<void()>& on_turn) {
  for (;; on_turn()) {
    MutexLock lock(mutex_);
    const TimePoint until = Clock::now() + kDrainTurn;
    while (!is_drained_ && !stopping_ && Clock::now() < until) changed_.wait_until(mutex_, until);
    if (is_drained_ || stopping_) return is_drained_;
  }
}

bool TaskQueue::is_drained() {
  MutexLock lock(mutex_);
  return is_drained_;
}

std::deque<ReleasedTask> TaskQueue::take_left() {
  MutexLock lock(mutex_);
  return std::exchange(released_, {});
}

void TaskQueue::begin_polling() {
  MutexLock lock(mutex_);
  ++pollers_;
}

// The lane's thread runs the short tasks that the last polling thread leaves.
void TaskQueue::end_polling() {
  MutexLock lock(mutex_);
  if (--pollers_ == 0 && has_task()) changed_.notify_all();
}

bool TaskQueue::run_short_task() {
  const std::optional<Task> task = next_short();
  if (!task) return false;
  const DefaultFloatEnvironment environment;
  run_or_fail([&] { callbacks_.run(*task); }, true);
  MutexLock lock(mutex_);
  end_task();
  if (stopping_ || (has_task() && !is_next_short())) changed_.notify_all();
  return true;
}

void TaskQueue::run_short_tasks(TimePoint until, const std::function<bool()>& is_done) {
  begin_polling();
  while (sleep_until_short(until, is_done)) run_short_task();
  end_polling();
}

// False: there is nothing left to wait for.
bool TaskQueue::sleep_until_short(TimePoint until, const std::function<bool()>& is_done) {
  MutexLock lock(mutex_);
  const auto is_over = [&]()
                           REQUIRES(mutex_) { return stopping_ || is_drained_ || is_done() || Clock::now() >= until; };
  ++sleepers_;
  while (!is_over() && (running_ || !is_next_short())) may_run_.wait_until(mutex_, until);
  --sleepers_;
  return !is_over();
}

void TaskQueue::end_task() {
  running_ = false;
  if (sleepers_ > 0) may_run_.notify_all();
}

std::optional<Task> TaskQueue::next_short() {
  MutexLock lock(mutex_);
  if (running_ || stopping_ || !is_next_short()) return std::nullopt;
  running_ = true;
  return pop_released();
}

bool TaskQueue::is_next_short() {
  if (released_.empty()) return false;
  const auto* job = std::get_if<Job>(&released_.front());
  return job == nullptr || callbacks_.is_short(*job);
}

// False: it threw, which ends the queue. is_task: this thread has set running_.
bool TaskQueue::run_or_fail(const std::function<void()>& run, bool is_task) noexcept {
  try {
    run();
    return true;
  } catch (...) {
    bool is_first = false;
    {
      MutexLock lock(mutex_);
      is_first = !std::exchange(has_failed_, true);
      stopping_ = true;
      if (is_task) running_ = false;
      wake_all();
    }
    if (is_first) callbacks_.failed(current_failure());
    return false;
  }
}

void TaskQueue::run_all() noexcept {
  const DefaultFloatEnvironment environment;
  bool ran_one = false;  // this thread did; at first running_ belongs to a polling thread, if it is set
  do {
    while (const auto task = next(ran_one)) {
      if (!run_or_fail([&] { callbacks_.run(*task); }, true)) return;
      ran_one = true;
    }
    ran_one = false;
  } while (!end());
}

// False: an ending was pushed meanwhile.
bool TaskQueue::end() {
  {
    MutexLock lock(mutex_);
    if (stopping_) return true;
  }
  if (!run_or_fail(callbacks_.finish, false)) return true;
  std::function<void()> drained;
  {
    MutexLock lock(mutex_);
    if (stopping_) return true;
    if (!released_.empty()) return false;
    is_drained_ = true;
    wake_all();
    drained = drained_;
  }
  drained();
  return true;
}

// A task, or a reason to end.
bool TaskQueue::has_task() {
  return stopping_ || drained_ || !released_.empty() || !filled_.empty();
}

// A task that no polling thread runs or will run.
bool TaskQueue::has_task_for_thread() {
  if (running_ || !has_task()) return false;
  return stopping_ || pollers_ == 0 || !is_next_short();
}

Task TaskQueue::pop_released() {
  Task task = std::visit([](auto& t) { return Task(std::move(t)); }, released_.front());
  released_.pop_front();
  return task;
}

// Released tasks precede packing. Nothing: the thread ends.
std::optional<Task> TaskQueue::next(bool ran_one) {
  if (ran_one) {
    MutexLock lock(mutex_);
    end_task();
    if (stopping_) changed_.notify_all();
  }
  const auto is_ready = [this] {
    MutexLock lock(mutex_);
    return has_task_for_thread() || pollers_ > 0;
  };
  if (ran_one) brief_wait_.poll(is_ready);
  while (true) {
    bool is_watching = false;
    if (!run_or_fail([&] { is_watching = callbacks_.watch(); }, false)) return std::nullopt;
    MutexLock lock(mutex_);
    if (wait_for_task(is_watching)) return take();
  }
}

// False: it is time to watch.
bool TaskQueue::wait_for_task(bool is_watching) {
  const TimePoint until = Clock::now() + kWatchTurn;
  while (!has_task_for_thread() && (!is_watching || Clock::now() < until)) {
    is_watching ? changed_.wait_until(mutex_, until) : changed_.wait(mutex_);
  }
  return has_task_for_thread();
}

std::optional<Task> TaskQueue::take() {
  if (stopping_) return std::nullopt;
  std::optional<Task> task;
  if (!released_.empty()) {
    task.emplace(pop_released());
  } else if (!drained_) {
    task.emplace(std::move(filled_.front()));
    filled_.pop_front();
  }
  running_ = task.has_value();
  return task;
}

}  // namespace horo
