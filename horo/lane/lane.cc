#include "horo/lane/lane.h"

#include <cfenv>
#include <utility>

#include "horo/base/thread.h"

namespace horo {
namespace {

constexpr std::size_t kShortBytes = 64 << 10;
constexpr std::size_t kLeastInPieces = 256 << 10;
constexpr std::size_t kLeastMeanPiece = 1 << 10;
constexpr std::chrono::milliseconds kDrainTurn{100};

bool is_at_most(const std::vector<Item>& items, std::size_t bytes) {
  for (const Item& item : items) {
    if (item.bytes > bytes) return false;
    bytes -= item.bytes;
  }
  return true;
}

// Sets the default floating-point environment: results must not depend on modes (flush-to-zero, rounding) of the
// thread.
class DefaultFloatEnvironment {
 public:
  DefaultFloatEnvironment() {
    std::fegetenv(&before_);
    std::fesetenv(FE_DFL_ENV);
  }
  ~DefaultFloatEnvironment() { std::fesetenv(&before_); }
  DefaultFloatEnvironment(const DefaultFloatEnvironment&) = delete;
  DefaultFloatEnvironment& operator=(const DefaultFloatEnvironment&) = delete;

 private:
  std::fenv_t before_;
};

}  // namespace

Lane::Lane(const LaneContext& context, Members members, std::uint32_t channel, LaneCallbacks callbacks)
    : context_(context),
      channel_(channel),
      is_shared_memory_(context.config.local_size == context.config.size && members.arenas != nullptr),
      groups_(context.transport, std::move(members), context.config, context.counters),
      callbacks_(std::move(callbacks)),
      buckets_(groups_.of({}, groups_.members().set), context.counters, context.config.min_np > 0),
      recorder_(context.timeline),
      commits_(context.tensor_table, buckets_, context.counters),
      thread_(start_thread("horo lane", [this] { loop(); })) {}

Lane::~Lane() {
  stop();
  join();
}

void Lane::enqueue(Job job) {
  {
    MutexLock lock(mutex_);
    released_.emplace_back(std::move(job));
    if (sleepers_ > 0 && !running_) may_run_.notify_all();
    if (pollers_ > 0 && is_next_short()) return;
  }
  changed_.notify_all();
}

bool Lane::enqueue(const Ending& ending) {
  MutexLock lock(mutex_);
  if (is_drained_) return false;
  released_.emplace_back(ending);
  wake_all();
  return true;
}

void Lane::close(std::function<void()> drained) {
  MutexLock lock(mutex_);
  drained_ = std::move(drained);
  changed_.notify_all();
}

void Lane::prepack(FilledPlan filled) {
  if (filled.items->size() < 2 || runs_by_tensor(*filled.items->front().spec)) return;
  MutexLock lock(mutex_);
  filled_.push_back(std::move(filled));
  changed_.notify_all();
}

void Lane::begin_polling() {
  MutexLock lock(mutex_);
  ++pollers_;
}

// The lane's thread runs the short tasks that the last polling thread leaves.
void Lane::end_polling() {
  MutexLock lock(mutex_);
  if (--pollers_ == 0 && has_task()) changed_.notify_all();
}

bool Lane::run_short_task() {
  const std::optional<Task> task = next_short_task();
  if (!task) return false;
  const DefaultFloatEnvironment environment;
  run_or_fail(*task);
  MutexLock lock(mutex_);
  end_task();
  if (stopping_ || (has_task() && !is_next_short())) changed_.notify_all();
  return true;
}

void Lane::run_short_tasks(TimePoint until, const std::function<bool()>& is_done) {
  begin_polling();
  while (sleep_until_short_task(until, is_done)) run_short_task();
  end_polling();
}

// False: there is nothing left to wait for.
bool Lane::sleep_until_short_task(TimePoint until, const std::function<bool()>& is_done) {
  MutexLock lock(mutex_);
  const auto is_over = [&]()
                           REQUIRES(mutex_) { return stopping_ || is_drained_ || is_done() || Clock::now() >= until; };
  ++sleepers_;
  while (!is_over() && (running_ || !is_next_short())) may_run_.wait_until(mutex_, until);
  --sleepers_;
  return !is_over();
}

void Lane::end_task() {
  running_ = false;
  if (sleepers_ > 0) may_run_.notify_all();
}

std::optional<Lane::Task> Lane::next_short_task() {
  MutexLock lock(mutex_);
  if (running_ || stopping_ || !is_next_short()) return std::nullopt;
  running_ = true;
  return pop_released();
}

bool Lane::is_next_short() {
  return !released_.empty() && is_short(released_.front());
}

// Members that share memory reach a small collective at about the same time. Code of users (custom operations, codecs)
// runs in the lane's thread only.
bool Lane::is_short(const std::variant<Job, Ending>& task) const {
  const auto* job = std::get_if<Job>(&task);
  if (job == nullptr) return true;
  const TensorSpec& spec = *job->first().spec;
  if (!is_shared_memory_ || spec.op == ReduceOp::kCustom || runs_by_tensor(spec)) return false;
  return is_at_most(*job->items, kShortBytes);
}

void Lane::stop() {
  MutexLock lock(mutex_);
  stopping_ = true;
  wake_all();
  while (running_) changed_.wait(mutex_);
}

void Lane::join() {
  if (thread_.joinable()) thread_.join();
}

bool Lane::wait_until_drained(const std::function<void()>& on_turn) {
  for (;; on_turn()) {
    MutexLock lock(mutex_);
    const TimePoint until = Clock::now() + kDrainTurn;
    while (!is_drained_ && !stopping_ && Clock::now() < until) changed_.wait_until(mutex_, until);
    if (is_drained_ || stopping_) return is_drained_;
  }
}

bool Lane::is_drained() {
  MutexLock lock(mutex_);
  return is_drained_;
}

// False: the task threw, which ends the lane.
bool Lane::run_or_fail(const Task& task) noexcept {
  try {
    std::visit([this](const auto& t) { run(t); }, task);
    return true;
  } catch (...) {
    {
      MutexLock lock(mutex_);
      stopping_ = true;
      running_ = false;
      wake_all();
    }
    callbacks_.failed(current_failure());
    return false;
  }
}

void Lane::loop() noexcept {
  const DefaultFloatEnvironment environment;
  bool ran_one = false;  // this thread did; at first running_ belongs to a polling thread, if it is set
  while (const auto task = next_task(ran_one)) {
    if (!run_or_fail(*task)) return;
    ran_one = true;
  }
  std::function<void()> drained;
  {
    MutexLock lock(mutex_);
    if (!is_drained_) return;
    drained = drained_;
  }
  drained();
}

// A task, or a reason to end.
bool Lane::has_task() {
  return stopping_ || drained_ || !released_.empty() || !filled_.empty();
}

// A task that no polling thread runs or will run.
bool Lane::has_task_for_thread() {
  if (running_ || !has_task()) return false;
  return stopping_ || pollers_ == 0 || !is_next_short();
}

Lane::Task Lane::pop_released() {
  Task task = std::visit([](auto& t) { return Task(std::move(t)); }, released_.front());
  released_.pop_front();
  return task;
}

// Released tasks precede packing. Nothing: the thread ends.
std::optional<Lane::Task> Lane::next_task(bool ran_one) {
  if (ran_one) {
    MutexLock lock(mutex_);
    end_task();
    if (stopping_) changed_.notify_all();
  }
  const auto is_ready = [this] {
    MutexLock lock(mutex_);
    return has_task_for_thread() || pollers_ > 0;
  };
  if (ran_one) brief_wait_.poll(is_ready);
  MutexLock lock(mutex_);
  while (!has_task_for_thread()) changed_.wait(mutex_);
  if (stopping_) return std::nullopt;
  std::optional<Task> task;
  if (!released_.empty()) {
    task.emplace(pop_released());
  } else if (drained_) {
    is_drained_ = true;
    wake_all();
  } else {
    task.emplace(std::move(filled_.front()));
    filled_.pop_front();
  }
  running_ = task.has_value();
  return task;
}

void Lane::run(const Job& job) {
  recorder_.begin(job);
  run_collective(job);
  recorder_.end(job);
  if (!job.release.reports_done) return;
  {
    MutexLock lock(mutex_);
    done_ += static_cast<std::uint32_t>(job.items->size());
  }
  callbacks_.done();
}

std::uint32_t Lane::take_done() {
  MutexLock lock(mutex_);
  return std::exchange(done_, 0);
}

void Lane::run_collective(const Job& job) {
  if (is_elastic()) return run_retained(job);
  if (runs_by_tensor(*job.first().spec)) {
    reduce_by_tensor(job);
  } else if (job.items->size() > 1) {
    reduce_bucket(job);
  } else {
    run_single(job);
  }
}

void Lane::run(const Ending& ending) {
  is_elastic() ? end_retained(ending) : end_all(context_.tensor_table, ending);
}

// Works end only in tasks of this lane while it runs, so a plan with no finished Work has all its memory.
void Lane::run(const FilledPlan& filled) {
  const std::vector<Item>& items = *filled.items;
  for (const Item& item : items) {
    if (item.work->finished()) return;
  }
  const TensorSpec& spec = *items.front().spec;
  Collective like;
  like.op = spec.op;
  like.dtype = spec.dtype;
  like.channel = channel_;
  like.counts = {bytes_of(items) / size_of(spec.dtype)};
  const bool may_find = !is_elastic() || groups_.all()->shard_bytes(like) > 0;
  if (!may_find || !find_pieces(items, like, *groups_.all())) buckets_.prepack(items);
}

Participants Lane::participants_of(const Job& job) {
  Group& group = groups_.of(job.release.ranks, job.release.set);
  const std::vector<int>& members = groups_.members().ranks;
  // Pairs of ranks exchange messages in their own orders, so the eager bytes of one pair say nothing about another.
  std::size_t* eager = job.first().spec->kind == CollectiveKind::kSendRecv ? nullptr : &eager_bytes_;
  return {group, job.release.ranks.empty() ? members : job.release.ranks, members, channel_, eager};
}

Collective Lane::collective_of(const Job& job, const Participants& participants) const {
  Collective collective = collective_for(job, participants, context_.config);
  const TensorSpec& spec = *job.first().spec;
  if (spec.op == ReduceOp::kCustom) collective.custom = &context_.registry.op(spec.custom_op);
  return collective;
}

// A retired tensor may be submitted again at once, so it is retired before its Work is finished. Nothing may throw
// between the two, because the tensor table does not hold the Work any more.
void Lane::retire_and_finish(const std::vector<Item>& items) noexcept {
  context_.tensor_table.retire(items);
  Work::finish_all(items);
}

void Lane::reduce_by_tensor(const Job& job) {
  const Participants participants = participants_of(job);
  run_by_tensor(job, participants, collective_of(job, participants));
  recorder_.mark(Phase::kTransfer);
  retire_and_finish(*job.items);
}

void Lane::run_by_tensor(const Job& job, const Participants& participants, const Collective& collective) {
  const std::string& codec = job.first().spec->codec;
  if (!codec.empty()) return coded_.run(job, participants, collective, context_.registry.codecs().get(codec));
  std::vector<AdasumTensor> tensors;
  tensors.reserve(job.items->size());
  for (const Item& item : *job.items) {
    tensors.push_back({static_cast<const std::byte*>(item.submission.in), static_cast<std::byte*>(item.submission.out),
                       item.spec->elements()});
  }
  run_adasum(participants.group, collective, tensors, adasum_scratch_);
}

// Where all members share memory, a collective over pieces copies only the parts that other members reduce. So packing
// pays only for small tensors.
bool Lane::find_pieces(const std::vector<Item>& items, const Collective& collective, const Group& group) {
  const std::size_t bytes = bytes_of(items);
  const bool pays = bytes >= kLeastInPieces && bytes / items.size() >= kLeastMeanPiece;
  if (!pays || contiguous_memory(items) != nullptr || !group.takes_pieces(collective)) return false;
  pieces_.clear();
  for (const Item& item : items) {
    pieces_.push_back(
        {static_cast<const std::byte*>(item.submission.in), static_cast<std::byte*>(item.submission.out), item.bytes});
  }
  return true;
}

void Lane::reduce_bucket(const Job& job) {
  const Participants participants = participants_of(job);
  Collective collective = collective_of(job, participants);
  collective.counts = {bytes_of(*job.items) / size_of(collective.dtype)};
  const bool is_packed = !find_pieces(*job.items, collective, participants.group);
  if (is_packed) {
    collective.in = collective.out = buckets_.packed(job);
  } else {
    collective.pieces = pieces_;
  }
  recorder_.mark(Phase::kPack);
  participants.group.run(collective);
  recorder_.mark(Phase::kTransfer);
  if (is_packed) buckets_.unpack(*job.items);
  recorder_.mark(Phase::kUnpack);
  retire_and_finish(*job.items);
}

void Lane::run_single(const Job& job) {
  const Item& item = job.first();
  const Participants participants = participants_of(job);
  Collective collective = collective_of(job, participants);
  if (item.spec->kind == CollectiveKind::kSendRecv) {
    // The root is the index of the sender in the pair. Ranks of the set and of the world have the same order.
    collective.root = item.spec->root < item.spec->peer ? 0 : 1;
  }
  Outcome outcome;
  FailurePtr failure;
  try {
    outcome = run_item(item, collective, participants);
  } catch (const OutTooSmall& e) {
    failure = invalid(e.what());
  }
  recorder_.mark(Phase::kTransfer);
  context_.tensor_table.retire(*job.items);
  if (failure) return item.work->fail(std::move(failure));
  item.work->finish(std::move(outcome));
}

}  // namespace horo
