#include "horo/lane.h"

#include <cfenv>

#include "horo/base/thread.h"

namespace horo {
namespace {

// A settled tensor may be submitted again at once, so this comes before its Work is finished; and right before, since
// the inbox does not know it any more.
void settle(Inbox& inbox, const std::vector<Item>& items) {
  std::vector<Key> keys;
  keys.reserve(items.size());
  for (const Item& item : items) keys.push_back(item.work->key());
  inbox.settle(keys);
}

// A message goes from one of two to the other.
void make_send_recv(Collective& collective, const TensorSpec& spec) {
  collective.root = spec.root < spec.peer ? 0 : 1;  // both orders, of the world and of the set, ascend
}

}  // namespace

Lane::Lane(const LaneTools& tools, Members members, std::uint32_t channel, std::function<void(FailurePtr)> failed)
    : tools_(tools),
      channel_(channel),
      groups_(tools.transport, std::move(members), tools.config, tools.counters),
      failed_(std::move(failed)),
      buckets_(groups_.of({}, groups_.members().set), tools.counters),
      thread_(start_thread("horo lane", [this] { loop(); })) {}

Lane::~Lane() {
  stop();
  join();
}

void Lane::run(Job job) {
  {
    MutexLock lock(mutex_);
    released_.emplace_back(std::move(job));
  }
  changed_.notify_all();
}

bool Lane::end(const Ending& ending) {
  MutexLock lock(mutex_);
  if (is_drained_) return false;
  released_.emplace_back(ending);
  changed_.notify_all();
  return true;
}

void Lane::close(std::function<void()> drained) {
  MutexLock lock(mutex_);
  drained_ = std::move(drained);
  changed_.notify_all();
}

void Lane::prepare(FilledPlan filled) {
  // A bucket of one is not packed, nor what lies side by side or travels as a codec's bytes.
  if (filled.items.size() < 2 || !filled.items.front().spec->codec.empty()) return;
  if (side_by_side(filled.items) != nullptr) return;
  MutexLock lock(mutex_);
  filled_.push_back(std::move(filled));
  changed_.notify_all();
}

void Lane::stop() {
  MutexLock lock(mutex_);
  stopping_ = true;
  changed_.notify_all();
  while (performs_) changed_.wait(mutex_);
}

void Lane::join() {
  if (thread_.joinable()) thread_.join();
}

bool Lane::is_drained() {
  MutexLock lock(mutex_);
  return is_drained_;
}

void Lane::loop() noexcept {
  // Sums must not depend on what the thread that made us did to the floating-point state (flush-to-zero, rounding).
  std::fesetenv(FE_DFL_ENV);
  try {
    while (const auto task = next()) {
      std::visit([this](const auto& t) { perform(t); }, *task);
    }
  } catch (...) {
    {
      MutexLock lock(mutex_);
      stopping_ = true;
      performs_ = false;
      changed_.notify_all();
    }
    return failed_(current_failure());
  }
  std::function<void()> drained;
  {
    MutexLock lock(mutex_);
    if (!is_drained_) return;
    drained = drained_;
  }
  drained();
}

// Or a reason to end.
bool Lane::has_task() {
  return stopping_ || drained_ || !released_.empty() || !filled_.empty();
}

// What was released comes before what could be packed ahead.
std::optional<Lane::Task> Lane::next() {
  bool was_busy = false;
  {
    MutexLock lock(mutex_);
    was_busy = std::exchange(performs_, false);
    if (was_busy && stopping_) changed_.notify_all();
  }
  const auto look = [this] {
    MutexLock lock(mutex_);
    return has_task();
  };
  if (was_busy) lookout_.look(look);
  MutexLock lock(mutex_);
  while (!has_task()) changed_.wait(mutex_);
  if (stopping_) return std::nullopt;
  std::optional<Task> task;
  if (!released_.empty()) {
    std::visit([&task](auto& t) { task.emplace(std::move(t)); }, released_.front());
    released_.pop_front();
  } else if (drained_) {
    is_drained_ = true;
  } else {
    task.emplace(std::move(filled_.front()));
    filled_.pop_front();
  }
  performs_ = task.has_value();
  return task;
}

void Lane::perform(const Job& job) {
  if (!job.items.front().spec->codec.empty()) {
    reduce_coded(job);
  } else if (job.items.size() > 1) {
    reduce_bucket(job);
  } else {
    run_alone(job);
  }
}

void Lane::perform(const Ending& ending) {
  end_all(tools_.inbox, ending);
}

// Only this thread finishes Works while the lane lives, so a plan whose first Work is unfinished has all its memory.
void Lane::perform(const FilledPlan& filled) {
  for (const Item& item : filled.items) {
    if (item.work->finished()) return;
  }
  buckets_.pack_ahead(filled.items);
}

JobGroup Lane::group_for(const Job& job) {
  Group& group = groups_.of(job.release.ranks, job.release.set);
  const std::vector<int>& everybody = groups_.members().ranks;
  // Pairs that exchange messages do so in orders of their own: what one of them sent ahead says nothing of another.
  std::size_t* eager = job.items.front().spec->kind == CollectiveKind::kSendRecv ? nullptr : &eager_bytes_;
  return {group, job.release.ranks.empty() ? everybody : job.release.ranks, everybody, channel_, eager};
}

Collective Lane::collective_of(const Job& job, const JobGroup& party) const {
  Collective collective = collective_for(job, party, tools_.config);
  const TensorSpec& spec = *job.items.front().spec;
  if (spec.op == ReduceOp::kCustom) collective.custom = &tools_.registry.op(spec.custom_op);
  return collective;
}

void Lane::reduce_coded(const Job& job) {
  const JobGroup party = group_for(job);
  const Codec& codec = tools_.registry.codecs().get(job.items.front().spec->codec);
  coded_.run(job, party, collective_of(job, party), codec);
  settle(tools_.inbox, job.items);
  for (const Item& item : job.items) item.work->finish(Outcome{});
}

void Lane::reduce_bucket(const Job& job) {
  const JobGroup party = group_for(job);
  Collective collective = collective_of(job, party);
  collective.in = collective.out = buckets_.packed(job);
  collective.counts = {collective.in.bytes / size_of(collective.dtype)};
  horo::run(party.group, collective);
  buckets_.deliver(job.items);
  settle(tools_.inbox, job.items);
  for (const Item& item : job.items) item.work->finish(Outcome{});
}

void Lane::run_alone(const Job& job) {
  const Item& item = job.items.front();
  const JobGroup party = group_for(job);
  Collective collective = collective_of(job, party);
  if (item.spec->kind == CollectiveKind::kSendRecv) make_send_recv(collective, *item.spec);
  Outcome outcome;
  FailurePtr failure;
  try {
    outcome = run_item(item, collective, party);
  } catch (const DoesNotFit& e) {
    failure = invalid(e.what());
  }
  settle(tools_.inbox, job.items);
  if (failure) return item.work->fail(std::move(failure));
  item.work->finish(std::move(outcome));
}

void end_all(Inbox& inbox, const Ending& ending) {
  std::vector<Outcome> outcomes(ending.items.size());
  for (Outcome& outcome : outcomes) {
    outcome.absent = ending.absent;
    outcome.counts = ending.counts;
  }
  settle(inbox, ending.items);
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
