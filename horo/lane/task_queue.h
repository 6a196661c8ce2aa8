// TaskQueue: the tasks of one lane in the order in which the engine gave them, and which thread runs the next one: the
// lane's thread, or, if the task is short, a thread that waits for a Work and polls meanwhile, which saves two thread
// hand-offs. One task runs at a time. Plans are packed when nothing else is there to do.
#pragma once

#include <deque>
#include <functional>
#include <optional>
#include <variant>

#include "horo/base/failure.h"
#include "horo/base/mutex.h"
#include "horo/base/time.h"
#include "horo/lane/ending.h"
#include "horo/lane/job.h"
#include "ring/os/waiting.h"

namespace horo {

using ReleasedTask = std::variant<Job, Ending>;
using Task = std::variant<Job, Ending, FilledPlan>;

// What the queue calls.
struct TaskCallbacks {
  // Runs the task in the calling thread, which has the default floating-point environment. Throws what ends the queue.
  std::function<void(const Task&)> run;
  // Called at most once, with what run() or finish() threw, by the same thread. Must not block.
  std::function<void(FailurePtr)> failed;
  // Whether a thread that polls may run the job; it may run any ending. Called under a lock.
  std::function<bool(const Job&)> is_short;
  // Called by the lane's thread when all jobs and endings have run, before the queue counts as drained. May block.
  std::function<void()> finish;
  // Called by the lane's thread several times a second while it has nothing to do. False: need not be called before the
  // next task. Throws what ends the queue.
  std::function<bool()> watch;
};

class TaskQueue {
 public:
  explicit TaskQueue(TaskCallbacks callbacks) : callbacks_(std::move(callbacks)) {}

  // ---- The engine's thread.

  // Jobs and endings run in the order of these calls.
  void push(Job job);
  // False: the queue was closed and is drained; the ending will not run. Nor does it after stop(); see take_left().
  bool push(const Ending& ending);
  // No job follows. When all jobs and endings have run, the lane's thread calls `drained`, which must not block, and
  // ends; plans are not packed any more.
  void close(std::function<void()> drained);
  // No task begins any more. Returns when none runs, and calls `on_turn` several times a second until then, without a
  // lock.
  void stop(const std::function<void()>& on_turn);
  // The queue was closed, and all jobs and endings have run.
  bool is_drained();
  // After close(): blocks until the queue is drained, and calls `on_turn` several times a second, without a lock.
  // False: a task threw, or the queue was stopped.
  bool wait_until_drained(const std::function<void()>& on_turn);
  // After stop(): takes the jobs and endings that did not run.
  std::deque<ReleasedTask> take_left();

  // ---- The lane's thread.

  // Runs tasks until the queue is stopped, a task throws, or the queue is drained.
  void run_all() noexcept;

  // ---- Any thread.

  // Packs the plan when no job or ending is there.
  void push(FilledPlan filled);
  // Between these two calls a thread polls run_short_task(). While threads poll, the lane's thread leaves short tasks
  // to them.
  void begin_polling();
  void end_polling();
  // Runs the next task if it is short and no thread runs one. Returns whether it ran one. Blocks until the other
  // members have run their part.
  bool run_short_task();
  // Sleeps until a short task is next, runs it, and so on, until is_done(), `until`, or the end of the queue. Only
  // tasks of this queue may make is_done() true, which is called under a lock.
  void run_short_tasks(TimePoint until, const std::function<bool()>& is_done);

 private:
  std::optional<Task> next(bool ran_one);
  std::optional<Task> take() REQUIRES(mutex_);
  std::optional<Task> next_short();
  bool run_or_fail(const std::function<void()>& run, bool is_task) noexcept;
  bool wait_for_task(bool is_watching) REQUIRES(mutex_);
  bool end();
  bool runs_until(TimePoint until);
  bool sleep_until_short(TimePoint until, const std::function<bool()>& is_done);
  bool has_task() REQUIRES(mutex_);
  bool has_task_for_thread() REQUIRES(mutex_);
  bool is_next_short() REQUIRES(mutex_);
  Task pop_released() REQUIRES(mutex_);
  void end_task() REQUIRES(mutex_);
  void wake_all() REQUIRES(mutex_) {
    changed_.notify_all();
    may_run_.notify_all();
  }

  const TaskCallbacks callbacks_;
  Mutex mutex_;
  CondVar changed_;
  std::deque<ReleasedTask> released_ GUARDED_BY(mutex_);
  std::deque<FilledPlan> filled_ GUARDED_BY(mutex_);
  bool stopping_ GUARDED_BY(mutex_) = false;  // also after a task threw
  bool has_failed_ GUARDED_BY(mutex_) = false;
  bool running_ GUARDED_BY(mutex_) = false;  // a thread, the lane's or one that polls, runs a task
  int pollers_ GUARDED_BY(mutex_) = 0;
  int sleepers_ GUARDED_BY(mutex_) = 0;  // of them in run_short_tasks()
  CondVar may_run_;                      // something for the sleepers to look at
  std::function<void()> drained_ GUARDED_BY(mutex_);
  bool is_drained_ GUARDED_BY(mutex_) = false;
  BriefWait brief_wait_;
};

}  // namespace horo
