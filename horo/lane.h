// Lane: runs the collectives of one process set, one after the other, in the order in which the coordinator released
// them. It packs, reduces and delivers; the buckets are its own, so lanes never wait for one another.
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
#include "horo/inbox.h"
#include "ring/group.h"

namespace horo {

// A released collective with this rank's buffers.
struct Job {
  Release release;
  std::vector<Item> items;  // in bucket order
};

// Works that end without a collective: no member had a value, or the ranks disagree (failure).
struct Ending {
  std::vector<Item> items;
  FailurePtr failure;
};

class Lane {
 public:
  // `failed` is told once, by the lane's thread, what ended its epoch (PeerLost, or a bug); it must not block. From
  // then on the lane does nothing; Works that it had are left to the engine. Group, inbox and counters outlive the
  // lane.
  Lane(Group& group, Inbox& inbox, const Config& config, Counters& counters, std::function<void(FailurePtr)> failed);
  ~Lane();

  // In this order, by the engine's thread.
  void run(Job job);
  void end(Ending ending);
  // Any thread: packs the plan when there is nothing better to do.
  void prepare(FilledPlan filled);
  // Returns when the thread has ended and no buffer is touched any more; the transport must have been aborted if a
  // collective may be in flight. Engine thread.
  void stop();

 private:
  struct Bucket {
    Allocation memory;
    std::shared_ptr<Work> packed;  // first Work of the known plan that lies packed in it
  };
  using Task = std::variant<Job, Ending, FilledPlan>;

  void loop() noexcept;
  std::optional<Task> next();
  void perform(const Job& job);
  void perform(const Ending& ending);
  void perform(const FilledPlan& filled);
  void reduce_bucket(const Job& job);
  void deliver(Bucket& bucket, const std::vector<Item>& items);
  void run_alone(const Job& job);
  Outcome gather(const Job& job);
  void settle(const std::vector<Item>& items);
  Bucket& claim(std::size_t bytes);
  Bucket& packed_bucket(const Job& job);
  void pack(Bucket& bucket, const std::vector<Item>& items);
  Collective collective_for(const Job& job) const;

  Group& group_;
  Inbox& inbox_;
  const Config config_;
  Counters& counters_;
  const std::function<void(FailurePtr)> failed_;
  Mutex mutex_;
  CondVar changed_;
  std::deque<std::variant<Job, Ending>> released_ GUARDED_BY(mutex_);
  std::deque<FilledPlan> filled_ GUARDED_BY(mutex_);
  bool stopping_ GUARDED_BY(mutex_) = false;  // also once an exception ended the lane
  std::deque<Bucket> buckets_;                // the lane's thread alone
  std::jthread thread_;
};

}  // namespace horo
