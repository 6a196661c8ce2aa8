// Delivery: where the results of a lane's jobs go, and when their Works end. A lane has one for its whole life: in
// place, where the job ends with the first lost rank, or retained until the commit, in an elastic job.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "horo/base/failure.h"
#include "horo/lane/buckets.h"
#include "horo/lane/device_runner.h"
#include "horo/lane/ending.h"
#include "horo/lane/job.h"
#include "horo/lane/job_recorder.h"
#include "horo/lane/lane_groups.h"
#include "horo/lane/staging.h"

namespace horo {

// The result of a job, or of an ending, before its delivery.
struct JobResult {
  ItemList items;
  Allocation memory = {};     // the results, one after the other; null: none, or they are in the callers' memory
  ShardedResult shards = {};  // not empty: the results are here, and `memory` is this member's shard
  std::size_t bytes = 0;      // of all results in `memory`, if it is no shard
  Outcome outcome = {};       // of a single item; absent: of all items
  FailurePtr failure = {};    // the works fail
  // The collective is enqueued, and its results are on a device.
  std::optional<DeviceResult> on_device = {};
};

// The collective that commits: its number, and the ranks that take part; empty: all members of the set.
struct Commit {
  std::uint64_t number = 0;
  std::vector<int> ranks;
};

// Objects that a delivery uses; all of them outlive it.
struct DeliveryContext {
  TensorTable& tensor_table;
  LaneGroups& groups;
  Buckets& buckets;
  Staging& staging;
  JobRecorder& recorder;
  DeviceRunner* devices = nullptr;  // null: tensors on devices go by way of the host
};

// The thread that runs the lane's tasks. Functions that run collectives throw what Group::run throws; deliver()
// also std::runtime_error (CUDA).
class Delivery {
 public:
  virtual ~Delivery() = default;

  // Whether the tensors of an all_reduce are reduced together. `collective` has the counts of all of them. The same on
  // all members.
  virtual bool is_bucket(const Job& job, const Participants& participants, const Collective& collective) const = 0;
  // Whether the tensors of a plan that are reduced together by a collective like this one will be packed.
  virtual bool is_packed(std::span<const Item> items, const Collective& like) const = 0;
  // Reduces the tensors together.
  virtual JobResult reduce_bucket(const Job& job, const Participants& participants, Collective collective) = 0;
  // The items of a job that is no bucket, with `out` set to where their results are written; `result` owns that memory.
  virtual ItemList outputs(const Job& job, const Participants& participants, JobResult& result) = 0;
  // The collective is complete on this rank, or enqueued on a device, except for a barrier, which is run here. The
  // job's Works end or are issued, now or when it is committed.
  virtual void deliver(const Job& job, const Participants& participants, const Collective& collective,
                       JobResult result) = 0;
  // Works that end without a collective.
  virtual void end(const Ending& ending) = 0;

  // ---- The engine's thread, when the lane's thread has ended, in an elastic job.

  // The number of the last collective that is complete on this rank.
  virtual std::uint64_t completed() const { return 0; }
  // Delivers what the commit in progress covers if it counts as done. Everything else stays in flight.
  virtual void settle(const std::function<bool(const Commit&)>& /*is_done*/) {}
  // Ends those works of the ending whose inputs are not needed again.
  virtual void settle_ending(const Ending& /*ending*/) {}
};

}  // namespace horo
