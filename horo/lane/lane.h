// Lane: runs the collectives of one process set, one after the other, in the order in which the coordinator released
// them. It packs, reduces and delivers; groups and buckets are its own, so lanes never wait for one another. A caller
// who waits for it may help: what is short he does himself, which saves the way to the lane's thread and back.
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
#include "horo/lane/job.h"
#include "horo/lane/lane_groups.h"
#include "horo/tensors/registry.h"
#include "horo/tensors/tensor_table.h"
#include "ring/os/waiting.h"

namespace horo {

// Works that end without a collective.
struct Ending {
  std::vector<Item> items;
  FailurePtr failure;                     // the ranks disagree; null: they end well, with
  std::vector<std::int64_t> counts = {};  //   these, or
  bool absent = false;                    //   without a value on any member
};

// Settles the items and ends their Works: all of them, or none where it throws (memory).
void end_all(TensorTable& tensor_table, const Ending& ending);

// What a lane works with; all of it outlives the lane.
struct LaneTools {
  Transport& transport;
  TensorTable& tensor_table;
  Counters& counters;
  const Config& config;
  const Registry& registry;
};

// Who is told, by whoever performs; neither may block.
struct LaneEars {
  // Once, what ended the lane's epoch (PeerLost, or a bug). From then on it does nothing; Works that it had are left to
  // the engine.
  std::function<void(FailurePtr)> failed;
  // There is something for take_done().
  std::function<void()> done;
};

class Lane {
 public:
  // `channel` is this lane's alone.
  Lane(const LaneTools& tools, Members members, std::uint32_t channel, LaneEars ears);
  ~Lane();

  // In this order, by the engine's thread.
  void run(Job job);
  // False: the lane was closed, and all is done; it ends no more.
  bool end(const Ending& ending);
  // No job comes after this: the thread ends when all is done, and then tells `drained`, which must not block.
  void close(std::function<void()> drained);
  // Any thread: packs the plan when there is nothing better to do.
  void prepare(FilledPlan filled);
  // Any thread, as often as it likes between begin_help() and end_help(): does the next thing if that is short and
  // nobody is at it. True if it did; that may take as long as the other members need to do the same.
  void begin_help();
  bool help();
  void end_help();
  // Returns when no buffer is touched any more, nor will be; the transport must have been aborted if a collective may
  // be in flight. Engine thread.
  void stop();
  // The thread has ended: nobody is told anything any more. After stop().
  void join();
  // It was closed, and all is done.
  bool is_drained();
  // Tensors of jobs that were to be told of (Release::tells) and are over since the last call.
  std::uint32_t take_done();
  // Any thread: the group of all members, for memory.
  std::shared_ptr<Group> group() const { return groups_.all(); }

 private:
  using Task = std::variant<Job, Ending, FilledPlan>;

  void loop() noexcept;
  std::optional<Task> next(bool was_busy);
  std::optional<Task> next_short();
  bool perform_or_fail(const Task& task) noexcept;
  bool has_task() REQUIRES(mutex_);
  bool is_free() REQUIRES(mutex_);
  bool is_short(const std::variant<Job, Ending>& released) const;
  Task take_released() REQUIRES(mutex_);
  void perform(const Job& job);
  void collect(const Job& job);
  void perform(const Ending& ending);
  void perform(const FilledPlan& filled);
  void reduce_bucket(const Job& job);
  bool find_pieces(const std::vector<Item>& items, const Collective& collective, const Group& group);
  void reduce_coded(const Job& job);
  void run_alone(const Job& job);
  JobGroup group_for(const Job& job);
  Collective collective_of(const Job& job, const JobGroup& party) const;

  const LaneTools tools_;
  const std::uint32_t channel_;
  const bool is_near_;  // all members share memory
  LaneGroups groups_;
  const LaneEars ears_;
  Mutex mutex_;
  CondVar changed_;
  std::deque<std::variant<Job, Ending>> released_ GUARDED_BY(mutex_);
  std::deque<FilledPlan> filled_ GUARDED_BY(mutex_);
  bool stopping_ GUARDED_BY(mutex_) = false;  // also once an exception ended the lane
  bool performs_ GUARDED_BY(mutex_) = false;  // somebody, the thread or a helper
  int helpers_ GUARDED_BY(mutex_) = 0;
  std::function<void()> drained_ GUARDED_BY(mutex_);
  bool is_drained_ GUARDED_BY(mutex_) = false;
  std::uint32_t done_ GUARDED_BY(mutex_) = 0;
  Lookout lookout_;
  std::vector<Piece> pieces_;    // of a bucket that is not packed: whoever performs, as is this,
  Buckets buckets_;              //   this,
  Coded coded_;                  //   this and
  std::size_t eager_bytes_ = 0;  // see JobGroup
  std::jthread thread_;
};

}  // namespace horo
