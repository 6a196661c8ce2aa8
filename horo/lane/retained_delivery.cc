#include "horo/lane/retained_delivery.h"

#include <utility>

#include "horo/base/fail_point.h"

namespace horo {
namespace {

// The plan numbers of commits, beside those of the collectives themselves.
constexpr std::uint64_t kCommitPlan = std::uint64_t{1} << 62;

// All members that take part reach it when the collective is complete on them.
Collective barrier_of(const Collective& committed) {
  Collective barrier;
  barrier.kind = CollectiveKind::kBarrier;
  barrier.contributors = committed.contributors;
  barrier.channel = committed.channel;
  barrier.plan = committed.plan | kCommitPlan;
  barrier.key_hash = committed.key_hash;
  barrier.deadline = committed.deadline;
  barrier.what = "the commit of " + committed.what;
  return barrier;
}

bool is_of_round(const Item& item) {
  return item.spec->round_stream != 0;
}

// The bytes of the item's result that are written apart from the caller's memory.
std::size_t apart_bytes_of(const Item& item, const Participants& participants) {
  return is_source_in_place(item, participants.group) ? 0 : out_bytes_of(item, participants);
}

}  // namespace

bool RetainedDelivery::is_bucket(const Job& job, const Participants& participants, const Collective& collective) const {
  return job.items->size() > 1 || shard_bytes(job, participants, collective) > 0;
}

bool RetainedDelivery::is_packed(std::span<const Item> items, const Collective& like) const {
  const ShardedGroup* sharded = context_.groups.all()->sharded();
  const bool has_shards = sharded != nullptr && sharded->shard_bytes(like) > 0;
  return !has_shards || !takes_pieces(items, like, *context_.groups.all());
}

// Zero: members do not keep shards. A group of all members keeps them, because they are written again when all members
// have delivered what they held.
std::size_t RetainedDelivery::shard_bytes(const Job& job, const Participants& participants,
                                          const Collective& collective) const {
  const ShardedGroup* sharded = participants.group.sharded();
  const bool is_of_all = &participants.group == context_.groups.all().get() && job.release.absent_ranks.empty();
  return sharded != nullptr && is_of_all ? sharded->shard_bytes(collective) : 0;
}

// Each member keeps the sums of its shard, and reads those of the others at the delivery.
bool RetainedDelivery::reduce_to_shards(const Job& job, const Participants& participants, Collective collective,
                                        JobResult& result) {
  const std::size_t bytes = shard_bytes(job, participants, collective);
  if (bytes == 0) return false;
  context_.buckets.place(job, participants.group, collective);
  Allocation shard = context_.buckets.take_shard(bytes);
  if (!participants.group.sharded()->reduce_to_shards(collective, buffer_of(shard.data.get(), bytes), result.shards)) {
    context_.buckets.give_back_shard(std::move(shard));
    return false;
  }
  context_.buckets.drop_packed();
  result.memory = std::move(shard);
  return true;
}

// Where members do not keep shards, tensors that are contiguous in memory are reduced from there into other memory, all
// others in the bucket that they are packed in.
JobResult RetainedDelivery::reduce_bucket(const Job& job, const Participants& participants, Collective collective) {
  const std::size_t bytes = bytes_of(*job.items);
  JobResult result{job.items};
  if (!reduce_to_shards(job, participants, collective, result)) {
    result.bytes = bytes;
    if (std::byte* in_place = contiguous_memory(*job.items)) {
      result.memory = context_.buckets.take(bytes);
      collective.in = buffer_of(in_place, bytes);
    } else {
      result.memory = context_.buckets.take_packed(job);
      collective.in = buffer_of(result.memory.data.get(), bytes);
    }
    collective.out = buffer_of(result.memory.data.get(), bytes);
    participants.group.run(collective);
  }
  context_.recorder.mark(Phase::kTransfer);
  return result;
}

// A result of variable size is the outcome's until its delivery.
ItemList RetainedDelivery::outputs(const Job& job, const Participants& participants, JobResult& result) {
  std::vector<Item> items = *job.items;
  for (const Item& item : items) result.bytes += apart_bytes_of(item, participants);
  result.memory = context_.buckets.take(result.bytes);
  std::byte* out = result.memory.data.get();
  for (Item& item : items) {
    if (is_source_in_place(item, participants.group)) continue;
    item.submission.out = out;
    if (out != nullptr) out += apart_bytes_of(item, participants);
  }
  return std::make_shared<const std::vector<Item>>(std::move(items));
}

// The barrier of the commit is the barrier of the job, too.
void RetainedDelivery::deliver(const Job& job, const Participants& participants, const Collective& collective,
                               JobResult result) {
  if (context_.devices != nullptr && context_.devices->holds_results() && Commits::commits(job)) {
    context_.devices->wait_for_results();
    fail_point("device.passed");
  }
  fail_point("lane.reduced");
  if (!commits_.complete(job, std::move(result))) return;
  fail_point("lane.complete");
  participants.group.run(barrier_of(collective));
  context_.recorder.mark(Phase::kUnpack);
  fail_point("lane.committed");
  commits_.deliver();
  fail_point("lane.delivered");
}

// The works of a round end together, so that all ranks that go on have the same ones.
void RetainedDelivery::end(const Ending& ending) {
  if (ending.failed_round.stream != 0) commits_.fail_round(ending.failed_round, ending.failure);
  std::vector<Item> of_rounds, others;
  for (const Item& item : ending.items) {
    const bool is_barrier = item.spec->kind == CollectiveKind::kBarrier;
    if (is_of_round(item) && is_barrier && ending.failure) {
      commits_.fail_round({item.spec->round_stream, item.round}, ending.failure);
    }
    (is_of_round(item) && !is_barrier ? of_rounds : others).push_back(item);
  }
  for (Item& item : of_rounds) {
    JobResult held{std::make_shared<const std::vector<Item>>(1, std::move(item))};
    held.outcome.absent = ending.absent;
    held.failure = ending.failure;
    commits_.hold(std::move(held));
  }
  if (!others.empty())
    end_all(context_.tensor_table, {std::move(others), ending.failure, ending.counts, ending.absent});
}

// The works of rounds run again.
void RetainedDelivery::settle_ending(const Ending& ending) {
  Ending rest{{}, ending.failure, ending.counts, ending.absent};
  for (const Item& item : ending.items) {
    if (!is_of_round(item)) rest.items.push_back(item);
  }
  if (!rest.items.empty()) end_all(context_.tensor_table, rest);
}

}  // namespace horo
