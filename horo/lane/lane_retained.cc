// The lane of an elastic job. docs/protocol.md has the protocol.
#include <utility>

#include "horo/base/fail_point.h"
#include "horo/lane/lane.h"

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

}  // namespace

void Lane::run_retained(const Job& job) {
  const Participants participants = participants_of(job);
  Collective collective = collective_of(job, participants);
  if (collective.kind == CollectiveKind::kAllReduce) {
    collective.counts = {bytes_of(*job.items) / size_of(collective.dtype)};
  }
  HeldResult result{job.items};
  fail_point("lane.data");
  if (runs_by_tensor(*job.first().spec)) {
    result = reduce_by_tensor_retained(job, participants, collective);
  } else if (job.items->size() > 1 || shard_bytes(job, participants, collective) > 0) {
    result = reduce_retained(job, participants, collective);
  } else if (job.first().spec->kind != CollectiveKind::kBarrier) {
    result = run_single_retained(job, participants, collective);
  }
  recorder_.mark(Phase::kTransfer);
  fail_point("lane.reduced");
  if (!commits_.complete(job, std::move(result))) return;
  fail_point("lane.complete");
  participants.group.run(barrier_of(collective));
  recorder_.mark(Phase::kUnpack);
  fail_point("lane.committed");
  commits_.deliver();
  fail_point("lane.delivered");
}

// Zero: members do not keep shards. A group of all members keeps them, because they are written again when all members
// have delivered what they held.
std::size_t Lane::shard_bytes(const Job& job, const Participants& participants, const Collective& collective) const {
  const bool is_of_all = &participants.group == groups_.all().get() && job.release.absent_ranks.empty();
  return is_of_all ? participants.group.shard_bytes(collective) : 0;
}

// Each member keeps the sums of its shard, and reads those of the others at the delivery.
bool Lane::reduce_to_shards(const Job& job, const Participants& participants, Collective collective,
                            HeldResult& result) {
  const std::size_t bytes = shard_bytes(job, participants, collective);
  if (bytes == 0) return false;
  const bool is_packed = !find_pieces(*job.items, collective, participants.group);
  if (is_packed) {
    collective.in = collective.out = buckets_.packed(job);
  } else {
    collective.pieces = pieces_;
  }
  Allocation shard = buckets_.take_shard(bytes);
  if (!participants.group.reduce_to_shards(collective, buffer_of(shard.data.get(), bytes), result.shards)) {
    buckets_.give_back_shard(std::move(shard));
    return false;
  }
  if (is_packed) buckets_.drop_packed();
  result.memory = std::move(shard);
  return true;
}

// Where members do not keep shards, tensors that are contiguous in memory are reduced from there into other memory, all
// others in the bucket that they are packed in.
HeldResult Lane::reduce_retained(const Job& job, const Participants& participants, Collective collective) {
  const std::size_t bytes = bytes_of(*job.items);
  HeldResult result{job.items};
  if (reduce_to_shards(job, participants, collective, result)) return result;
  result.bytes = bytes;
  if (std::byte* in_place = contiguous_memory(*job.items)) {
    result.memory = buckets_.take(bytes);
    collective.in = buffer_of(in_place, bytes);
  } else {
    result.memory = buckets_.take_packed(job);
    collective.in = buffer_of(result.memory.data.get(), bytes);
  }
  collective.out = buffer_of(result.memory.data.get(), bytes);
  participants.group.run(collective);
  return result;
}

HeldResult Lane::reduce_by_tensor_retained(const Job& job, const Participants& participants,
                                           const Collective& collective) {
  HeldResult result{job.items};
  result.bytes = bytes_of(*job.items);
  result.memory = buckets_.take(result.bytes);
  std::vector<Item> items = *job.items;
  std::byte* out = result.memory.data.get();
  for (Item& item : items) {
    item.submission.out = out;
    out += item.bytes;
  }
  const Job apart{job.release, std::make_shared<const std::vector<Item>>(std::move(items))};
  run_by_tensor(apart, participants, collective);
  return result;
}

// A result of variable size is the outcome's until its delivery.
HeldResult Lane::run_single_retained(const Job& job, const Participants& participants, const Collective& like) {
  Collective collective = like;
  Item item = job.first();
  const TensorSpec& spec = *item.spec;
  if (spec.kind == CollectiveKind::kSendRecv) collective.root = spec.root < spec.peer ? 0 : 1;
  HeldResult result{job.items};
  const bool is_source = spec.kind == CollectiveKind::kBroadcast && spec.root == participants.group.rank();
  if (!is_source || item.submission.in != item.submission.out) {
    result.bytes = out_bytes_of(item, participants);
    result.memory = buckets_.take(result.bytes);
    item.submission.out = result.memory.data.get();
  }
  result.outcome = run_item(item, collective, participants);
  return result;
}

// The works of a round end together, so that all ranks that go on have the same ones.
void Lane::end_retained(const Ending& ending) {
  std::vector<Item> of_rounds, others;
  for (const Item& item : ending.items) {
    const bool is_barrier = item.spec->kind == CollectiveKind::kBarrier;
    if (is_of_round(item) && is_barrier && ending.failure) commits_.fail_round(item, ending.failure);
    (is_of_round(item) && !is_barrier ? of_rounds : others).push_back(item);
  }
  for (Item& item : of_rounds) {
    HeldResult held{std::make_shared<const std::vector<Item>>(1, std::move(item))};
    held.outcome.absent = ending.absent;
    held.failure = ending.failure;
    commits_.hold(std::move(held));
  }
  if (!others.empty())
    end_all(context_.tensor_table, {std::move(others), ending.failure, ending.counts, ending.absent});
}

// What the coordinator has ended ends here too; the works of rounds run again.
void Lane::settle(const std::function<bool(const Commit&)>& is_done) {
  commits_.settle(is_done);
  std::deque<std::variant<Job, Ending>> left;
  {
    MutexLock lock(mutex_);
    left.swap(released_);
  }
  for (const auto& task : left) {
    const auto* ending = std::get_if<Ending>(&task);
    if (ending == nullptr) continue;
    Ending rest{{}, ending->failure, ending->counts, ending->absent};
    for (const Item& item : ending->items) {
      if (!is_of_round(item)) rest.items.push_back(item);
    }
    if (!rest.items.empty()) end_all(context_.tensor_table, rest);
  }
}

void end_all(TensorTable& tensor_table, const Ending& ending) {
  std::vector<Outcome> outcomes(ending.items.size());
  for (Outcome& outcome : outcomes) {
    outcome.absent = ending.absent;
    outcome.counts = ending.counts;
  }
  tensor_table.retire(ending.items);
  for (std::size_t i = 0; i < outcomes.size(); ++i) {
    Work& work = *ending.items[i].work;
    if (ending.failure) {
      work.fail(ending.failure);
    } else {
      work.finish(std::move(outcomes[i]));
    }
  }
}

}  // namespace horo
