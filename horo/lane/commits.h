// Commits: the results of a lane in an elastic job. A collective leaves its inputs intact: its result, or this member's
// shard of it, is held apart until it is committed, and then copied to the callers' memory. A collective of a round
// (TensorSpec::round_stream) is committed by the barrier of its round, any other one by itself. docs/protocol.md has
// the reasons.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <vector>

#include "horo/lane/buckets.h"
#include "horo/lane/delivery.h"
#include "horo/tensors/tensor_table.h"

namespace horo {

// The thread that runs the lane's tasks, or the engine's when that has ended.
class Commits {
 public:
  Commits(const DeliveryContext& context, Counters& counters) : context_(context), counters_(counters) {}

  // Whether the job commits by itself or, as the barrier of a round, with all that is held of the round. What it
  // commits must be complete before complete().
  static bool commits(const Job& job);

  // The collective is complete on this rank, or enqueued on a device if it does not commit. True: it commits, and the
  // caller runs the commit's barrier, and then deliver(). False: it is held.
  bool complete(const Job& job, JobResult result);
  // Works of a round that end without a result.
  void hold(JobResult result);
  // The round will not be committed: its works fail, also those that are complete later.
  void fail_round(const FailedRound& failed, const FailurePtr& failure);
  // Delivers what the commit in progress covers.
  void deliver();

  // The number of the last collective that is complete on this rank.
  std::uint64_t completed() const { return completed_; }
  // The epoch has ended: a commit that was in progress is delivered if it counts as done. All other results are
  // dropped.
  void settle(const std::function<bool(const Commit&)>& is_done);

 private:
  // The failure of the round that the results are of; null: it has not failed.
  FailurePtr failure_of(const JobResult& result) const;
  void count_commit();
  void deliver_one(JobResult& held);
  void deliver_on_device(JobResult& held);
  void copy_results(const JobResult& held);
  void end(JobResult& held);

  const DeliveryContext context_;
  Counters& counters_;
  std::uint64_t completed_ = 0;
  std::map<std::uint64_t, std::vector<JobResult>> rounds_;  // by round stream
  struct Failed {
    std::uint64_t round = 0;
    FailurePtr failure;
  };
  std::map<std::uint64_t, Failed> failed_;  // the last failed round, by round stream
  Commit commit_;                           // in progress, with these results
  bool is_round_ = false;                   // the commit in progress is that of a round
  std::vector<JobResult> committing_;
};

}  // namespace horo
