// Lane: runs the collectives of one process set, one after the other, in the order in which the coordinator released
// them. A lane has its own groups and buckets, so lanes do not wait for one another. A thread that waits for a Work may
// poll the lane and run its short tasks itself, which saves two thread hand-offs.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <thread>
#include <variant>
#include <vector>

#include "horo/base/config.h"
#include "horo/base/counters.h"
#include "horo/base/failure.h"
#include "horo/base/mutex.h"
#include "horo/lane/buckets.h"
#include "horo/lane/coded.h"
#include "horo/lane/commits.h"
#include "horo/lane/job.h"
#include "horo/lane/job_recorder.h"
#include "horo/lane/lane_groups.h"
#include "horo/tensors/registry.h"
#include "horo/tensors/tensor_table.h"
#include "ring/group/adasum.h"
#include "ring/os/waiting.h"

namespace horo {

// Works that end without a collective.
struct Ending {
  std::vector<Item> items;
  FailurePtr failure;                     // not null: the Works fail. Else they finish with an Outcome of
  std::vector<std::int64_t> counts = {};  //   these counts and
  bool absent = false;                    //   this flag
};

// Retires the items and ends their Works. Throws (memory) before it retires any.
void end_all(TensorTable& tensor_table, const Ending& ending);

// Objects that a lane uses; all of them outlive it.
struct LaneContext {
  Transport& transport;
  TensorTable& tensor_table;
  Counters& counters;
  const Config& config;
  const Registry& registry;
  Timeline* timeline = nullptr;  // null: none
};

// Called by the thread that runs a task of the lane. Neither may block.
struct LaneCallbacks {
  // Called at most once, with the failure that ended the lane (PeerLost, or a bug). The lane runs no task after it, and
  // leaves the Works of the remaining tasks to the engine.
  std::function<void(FailurePtr)> failed;
  // take_done() has a new value.
  std::function<void()> done;
};

class Lane {
 public:
  // `channel` belongs to this lane alone.
  Lane(const LaneContext& context, Members members, std::uint32_t channel, LaneCallbacks callbacks);
  ~Lane();

  // ---- The engine's thread.

  // Jobs and endings run in the order of these calls.
  void enqueue(Job job);
  // False: the lane was closed and is drained; the ending was not enqueued.
  bool enqueue(const Ending& ending);
  // No job follows. When all tasks have run, the thread calls `drained`, which must not block, and ends.
  void close(std::function<void()> drained);
  // Returns when no buffer is in use and none will be. If a collective may be in flight, the transport must have been
  // aborted before.
  void stop();
  // Returns when the thread has ended; no callback is called after it. Follows stop().
  void join();
  // The lane was closed, and all tasks have run.
  bool is_drained();
  // After close(): blocks until the lane is drained, and calls `on_turn` several times a second, without a lock. False:
  // it has failed or was stopped.
  bool wait_until_drained(const std::function<void()>& on_turn);
  // Follows join(). The number of the last collective that is complete on this rank; see Commits.
  std::uint64_t completed() const { return commits_.completed(); }
  // Follows join(): ends what the commit in progress covers, if it counts as done, and the works that the coordinator
  // has ended. Everything else stays in flight.
  void settle(const std::function<bool(const Commit&)>& is_done);
  // Continues with the residuals of a drained lane of the same set. Precedes the first job.
  void take_residuals(Lane& drained) { coded_ = std::move(drained.coded_); }
  // Number of tensors in jobs with Release::reports_done that have ended since the last call.
  std::uint32_t take_done();

  // ---- Any thread.

  // Packs the plan when no job or ending is queued.
  void prepack(FilledPlan filled);
  // Between these two calls a thread polls run_short_task(). While threads poll, the lane's thread leaves short tasks
  // to them.
  void begin_polling();
  void end_polling();
  // Runs the next task if it is short and no thread runs one. Returns whether it ran one. Blocks until the other
  // members have run their part.
  bool run_short_task();
  // Polls asleep: runs each short task, until is_done(), `until`, or the end of the lane. Only tasks of this lane may
  // make is_done() true, which is called under a lock.
  void run_short_tasks(TimePoint until, const std::function<bool()>& is_done);
  const std::vector<int>& members() const { return groups_.members().ranks; }
  // The group of all members, for memory.
  std::shared_ptr<Group> group() const { return groups_.all(); }

 private:
  using Task = std::variant<Job, Ending, FilledPlan>;

  void loop() noexcept;
  std::optional<Task> next_task(bool ran_one);
  std::optional<Task> next_short_task();
  bool run_or_fail(const Task& task) noexcept;
  bool has_task() REQUIRES(mutex_);
  bool has_task_for_thread() REQUIRES(mutex_);
  bool is_next_short() REQUIRES(mutex_);
  bool sleep_until_short_task(TimePoint until, const std::function<bool()>& is_done);
  void end_task() REQUIRES(mutex_);
  void wake_all() REQUIRES(mutex_) {
    changed_.notify_all();
    may_run_.notify_all();
  }
  bool is_short(const std::variant<Job, Ending>& task) const;
  Task pop_released() REQUIRES(mutex_);
  void run(const Job& job);
  void run(const Ending& ending);
  void run(const FilledPlan& filled);
  void run_collective(const Job& job);
  void reduce_bucket(const Job& job);
  bool find_pieces(const std::vector<Item>& items, const Collective& collective, const Group& group);
  void reduce_by_tensor(const Job& job);
  void run_by_tensor(const Job& job, const Participants& participants, const Collective& collective);
  void run_retained(const Job& job);
  void end_retained(const Ending& ending);
  HeldResult reduce_retained(const Job& job, const Participants& participants, Collective collective);
  std::size_t shard_bytes(const Job& job, const Participants& participants, const Collective& collective) const;
  bool reduce_to_shards(const Job& job, const Participants& participants, Collective collective, HeldResult& result);
  HeldResult reduce_by_tensor_retained(const Job& job, const Participants& participants, const Collective& collective);
  HeldResult run_single_retained(const Job& job, const Participants& participants, const Collective& like);
  bool is_elastic() const { return context_.config.min_np > 0; }
  void run_single(const Job& job);
  Participants participants_of(const Job& job);
  Collective collective_of(const Job& job, const Participants& participants) const;
  void retire_and_finish(const std::vector<Item>& items) noexcept;

  const LaneContext context_;
  const std::uint32_t channel_;
  const bool is_shared_memory_;  // all members share memory
  LaneGroups groups_;
  const LaneCallbacks callbacks_;
  Mutex mutex_;
  CondVar changed_;
  std::deque<std::variant<Job, Ending>> released_ GUARDED_BY(mutex_);
  std::deque<FilledPlan> filled_ GUARDED_BY(mutex_);
  bool stopping_ GUARDED_BY(mutex_) = false;  // also after an exception ended the lane
  bool running_ GUARDED_BY(mutex_) = false;   // a thread, the lane's or one that polls, runs a task
  int pollers_ GUARDED_BY(mutex_) = 0;
  int sleepers_ GUARDED_BY(mutex_) = 0;  // of them in run_short_tasks()
  CondVar may_run_;                      // something for the sleepers to look at
  std::function<void()> drained_ GUARDED_BY(mutex_);
  bool is_drained_ GUARDED_BY(mutex_) = false;
  std::uint32_t done_ GUARDED_BY(mutex_) = 0;
  BriefWait brief_wait_;
  // Members of the thread that runs a task:
  std::vector<Piece> pieces_;  // of a bucket that is not packed
  Buckets buckets_;
  JobRecorder recorder_;
  Commits commits_;
  Coded coded_{context_.config.kept_tensors};
  AdasumScratch adasum_scratch_;
  std::size_t eager_bytes_ = 0;  // see Participants
  std::jthread thread_;
};

}  // namespace horo
