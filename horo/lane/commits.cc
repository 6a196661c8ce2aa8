#include "horo/lane/commits.h"

#include <cstring>
#include <iterator>
#include <utility>

#include "horo/base/fail_point.h"

namespace horo {
namespace {

// A result of variable size goes to the caller's memory, if there is any. Returns a failure if it is too small.
FailurePtr move_to_caller(const Item& item, Outcome& outcome) {
  const Submission& submission = item.submission;
  if (!outcome.data || submission.out == nullptr) return nullptr;
  if (outcome.bytes > submission.out_bytes) return invalid(too_small_text(item, outcome.bytes));
  if (outcome.bytes > 0) std::memcpy(submission.out, outcome.data.get(), outcome.bytes);
  outcome.data.reset();
  return nullptr;
}

}  // namespace

bool Commits::commits(const Job& job) {
  const TensorSpec& spec = *job.first().spec;
  return spec.kind == CollectiveKind::kBarrier || spec.round_stream == 0;
}

bool Commits::complete(const Job& job, JobResult result) {
  completed_ = job.release.number;
  const TensorSpec& spec = *job.first().spec;
  if (!commits(job)) {
    hold(std::move(result));
    return false;
  }
  commit_ = {job.release.number, job.release.ranks};
  is_round_ = spec.round_stream != 0;
  if (is_round_) committing_ = std::exchange(rounds_[spec.round_stream], {});
  committing_.push_back(std::move(result));
  return true;
}

// Ranks submit a round when all works of the one before have ended, so no round of a stream overtakes another one.
void Commits::hold(JobResult result) {
  if (const FailurePtr failure = failure_of(result)) {
    result.failure = failure;
    return deliver_one(result);
  }
  rounds_[result.items->front().spec->round_stream].push_back(std::move(result));
}

FailurePtr Commits::failure_of(const JobResult& result) const {
  const Item& first = result.items->front();
  const auto found = failed_.find(first.spec->round_stream);
  return found != failed_.end() && first.round <= found->second.round ? found->second.failure : nullptr;
}

void Commits::fail_round(const FailedRound& failed, const FailurePtr& failure) {
  Failed& last = failed_[failed.stream];
  if (failed.round > last.round) last = {failed.round, failure};
  for (JobResult& held : std::exchange(rounds_[failed.stream], {})) {
    const FailurePtr of_round = failure_of(held);
    if (!of_round) {
      rounds_[failed.stream].push_back(std::move(held));
      continue;
    }
    if (!held.failure) held.failure = of_round;
    deliver_one(held);
  }
}

void Commits::deliver() {
  count_commit();
  for (JobResult& held : std::exchange(committing_, {})) deliver_one(held);
}

void Commits::copy_results(const JobResult& held) {
  const std::byte* from = held.memory.data.get();
  if (from == nullptr) return;
  const bool is_single = held.items->size() == 1 && held.shards.is_empty();
  std::size_t done = 0;
  for (const Item& item : *held.items) {
    const std::size_t bytes = is_single ? held.bytes : item.bytes;
    auto* const to = static_cast<std::byte*>(item.submission.out);
    if (!held.shards.is_empty()) {
      held.shards.read(done, bytes, to);
    } else if (bytes > 0) {
      std::memcpy(to, from + done, bytes);
    }
    done += bytes;
  }
  counters_.add_unpacked(done);
}

// The barrier of a round is no collective of the caller, and neither is what ends without a result.
void Commits::count_commit() {
  std::uint64_t collectives = 0;
  for (const JobResult& held : committing_) collectives += held.failure || held.outcome.absent ? 0 : 1;
  counters_.add_commit(is_round_ ? collectives - 1 : collectives, is_round_);
}

// The works end after the last write to their memory.
void Commits::deliver_one(JobResult& held) {
  if (held.on_device) return deliver_on_device(held);
  if (!held.failure) copy_results(held);
  held.shards.is_empty() ? context_.buckets.give_back(std::move(held.memory))
                         : context_.buckets.give_back_shard(std::move(held.memory));
  if (!held.failure) held.failure = move_to_caller(held.items->front(), held.outcome);
  held.failure ? context_.staging.drop(*held.items) : context_.staging.copy_out(*held.items, held.outcome);
  end(held);
}

void Commits::deliver_on_device(JobResult& held) {
  DeviceResults& results = context_.devices->results();
  if (held.failure) {
    results.drop(*held.on_device);
    return end(held);
  }
  fail_point("device.delivered");
  held.on_device->fits ? results.deliver(context_.tensor_table, held.items, std::move(*held.on_device))
                       : results.end_on_host(context_.tensor_table, held.items, std::move(*held.on_device));
}

void Commits::end(JobResult& held) {
  const std::vector<Item>& items = *held.items;
  context_.tensor_table.retire(items);
  if (!held.failure && !held.outcome.absent && items.size() > 1) return Work::finish_all(items);
  for (const Item& item : items) {
    if (held.failure) {
      item.work->fail(held.failure);
    } else if (items.size() == 1) {
      item.work->finish(std::move(held.outcome));
    } else {
      Outcome absent;
      absent.absent = true;
      item.work->finish(std::move(absent));
    }
  }
}

void Commits::settle(const std::function<bool(const Commit&)>& is_done) {
  if (!committing_.empty() && is_done(commit_)) deliver();
  committing_.clear();
  rounds_.clear();
}

}  // namespace horo
