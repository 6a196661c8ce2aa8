#include "horo/lane/lane.h"

#include <cfenv>
#include <utility>

#include "horo/base/thread.h"

namespace horo {
namespace {

// A settled tensor may be submitted again at once, so this comes before its Work is finished; and right before, since
// the tensor_table does not know it any more.
void settle(TensorTable& tensor_table, const std::vector<Item>& items) {
  std::vector<Key> keys;
  keys.reserve(items.size());
  for (const Item& item : items) keys.push_back(item.work->key());
  tensor_table.settle(keys);
}

// What needs memory comes first.
void settle_and_finish(TensorTable& tensor_table, const std::vector<Item>& items) {
  std::vector<std::shared_ptr<Work>> works;
  works.reserve(items.size());
  for (const Item& item : items) works.push_back(item.work);
  settle(tensor_table, items);
  Work::finish_all(works);
}

constexpr std::size_t kShortBytes = 64 << 10;
constexpr std::size_t kLeastInPieces = 256 << 10;
constexpr std::size_t kLeastPiece = 1 << 10;  // in the mean

bool is_at_most(const std::vector<Item>& items, std::size_t bytes) {
  for (const Item& item : items) {
    if (item.bytes > bytes) return false;
    bytes -= item.bytes;
  }
  return true;
}

// Sums must not depend on what the thread was told about floating-point numbers (flush-to-zero, rounding).
class PlainFloats {
 public:
  PlainFloats() {
    std::fegetenv(&before_);
    std::fesetenv(FE_DFL_ENV);
  }
  ~PlainFloats() { std::fesetenv(&before_); }
  PlainFloats(const PlainFloats&) = delete;
  PlainFloats& operator=(const PlainFloats&) = delete;

 private:
  std::fenv_t before_;
};

// A message goes from one of two to the other.
void make_send_recv(Collective& collective, const TensorSpec& spec) {
  collective.root = spec.root < spec.peer ? 0 : 1;  // both orders, of the world and of the set, ascend
}

}  // namespace

Lane::Lane(const LaneTools& tools, Members members, std::uint32_t channel, LaneEars ears)
    : tools_(tools),
      channel_(channel),
      is_near_(tools.config.local_size == tools.config.size && members.arenas != nullptr),
      groups_(tools.transport, std::move(members), tools.config, tools.counters),
      ears_(std::move(ears)),
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
    if (helpers_ > 0 && is_short(released_.front())) return;
  }
  changed_.notify_all();
}

void Lane::begin_help() {
  MutexLock lock(mutex_);
  ++helpers_;
}

// What was left to the helpers.
void Lane::end_help() {
  MutexLock lock(mutex_);
  if (--helpers_ == 0 && has_task()) changed_.notify_all();
}

bool Lane::help() {
  const std::optional<Task> task = next_short();
  if (!task) return false;
  const PlainFloats plain;
  perform_or_fail(*task);
  MutexLock lock(mutex_);
  performs_ = false;
  if (stopping_ || (has_task() && (released_.empty() || !is_short(released_.front())))) changed_.notify_all();
  return true;
}

std::optional<Lane::Task> Lane::next_short() {
  MutexLock lock(mutex_);
  if (performs_ || stopping_ || released_.empty() || !is_short(released_.front())) return std::nullopt;
  performs_ = true;
  return take_released();
}

// Inside a host whoever takes part has got as far. What is the user's own runs in threads of ours alone.
bool Lane::is_short(const std::variant<Job, Ending>& released) const {
  const auto* job = std::get_if<Job>(&released);
  if (job == nullptr) return true;
  const TensorSpec& spec = *job->items.front().spec;
  if (!is_near_ || spec.op == ReduceOp::kCustom || !spec.codec.empty()) return false;
  return is_at_most(job->items, kShortBytes);
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
  // A bucket of one is not packed, nor what travels as a codec's bytes.
  if (filled.items.size() < 2 || !filled.items.front().spec->codec.empty()) return;
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

// False: that was the end of the lane.
bool Lane::perform_or_fail(const Task& task) noexcept {
  try {
    std::visit([this](const auto& t) { perform(t); }, task);
    return true;
  } catch (...) {
    {
      MutexLock lock(mutex_);
      stopping_ = true;
      performs_ = false;
      changed_.notify_all();
    }
    ears_.failed(current_failure());
    return false;
  }
}

void Lane::loop() noexcept {
  const PlainFloats plain;
  bool was_busy = false;  // this thread: at first it is not, but a helper may be
  while (const auto task = next(was_busy)) {
    if (!perform_or_fail(*task)) return;
    was_busy = true;
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

// There is something for the thread, unless a helper is at it or will be.
bool Lane::is_free() {
  if (performs_ || !has_task()) return false;
  return stopping_ || helpers_ == 0 || released_.empty() || !is_short(released_.front());
}

Lane::Task Lane::take_released() {
  Task task = std::visit([](auto& t) { return Task(std::move(t)); }, released_.front());
  released_.pop_front();
  return task;
}

// What was released comes before what could be packed ahead.
std::optional<Lane::Task> Lane::next(bool was_busy) {
  if (was_busy) {
    MutexLock lock(mutex_);
    performs_ = false;
    if (stopping_) changed_.notify_all();
  }
  const auto look = [this] {
    MutexLock lock(mutex_);
    return is_free() || helpers_ > 0;
  };
  if (was_busy) lookout_.look(look);
  MutexLock lock(mutex_);
  while (!is_free()) changed_.wait(mutex_);
  if (stopping_) return std::nullopt;
  std::optional<Task> task;
  if (!released_.empty()) {
    task.emplace(take_released());
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
  collect(job);
  if (!job.release.tells) return;
  {
    MutexLock lock(mutex_);
    done_ += static_cast<std::uint32_t>(job.items.size());
  }
  ears_.done();
}

std::uint32_t Lane::take_done() {
  MutexLock lock(mutex_);
  return std::exchange(done_, 0);
}

void Lane::collect(const Job& job) {
  if (!job.items.front().spec->codec.empty()) {
    reduce_coded(job);
  } else if (job.items.size() > 1) {
    reduce_bucket(job);
  } else {
    run_alone(job);
  }
}

void Lane::perform(const Ending& ending) {
  end_all(tools_.tensor_table, ending);
}

// Only this thread finishes Works while the lane lives, so a plan whose first Work is unfinished has all its memory.
void Lane::perform(const FilledPlan& filled) {
  for (const Item& item : filled.items) {
    if (item.work->finished()) return;
  }
  const TensorSpec& spec = *filled.items.front().spec;
  Collective like;
  like.op = spec.op;
  like.dtype = spec.dtype;
  like.channel = channel_;
  like.counts = {bytes_of(filled.items) / size_of(spec.dtype)};
  if (!find_pieces(filled.items, like, *groups_.all())) buckets_.pack_ahead(filled.items);
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
  settle_and_finish(tools_.tensor_table, job.items);
}

// Where all see each other's memory, only the parts that others sum are copied at all, from where the tensors lie and
// back: so packing pays only for small ones.
bool Lane::find_pieces(const std::vector<Item>& items, const Collective& collective, const Group& group) {
  const std::size_t bytes = bytes_of(items);
  const bool pays = bytes >= kLeastInPieces && bytes / items.size() >= kLeastPiece;
  if (!pays || side_by_side(items) != nullptr || !group.takes_pieces(collective)) return false;
  pieces_.clear();
  for (const Item& item : items) {
    pieces_.push_back(
        {static_cast<const std::byte*>(item.submission.in), static_cast<std::byte*>(item.submission.out), item.bytes});
  }
  return true;
}

void Lane::reduce_bucket(const Job& job) {
  const JobGroup party = group_for(job);
  Collective collective = collective_of(job, party);
  collective.counts = {bytes_of(job.items) / size_of(collective.dtype)};
  const bool is_packed = !find_pieces(job.items, collective, party.group);
  if (is_packed) {
    collective.in = collective.out = buckets_.packed(job);
  } else {
    collective.pieces = pieces_;
  }
  party.group.run(collective);
  if (is_packed) buckets_.deliver(job.items);
  settle_and_finish(tools_.tensor_table, job.items);
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
  settle(tools_.tensor_table, job.items);
  if (failure) return item.work->fail(std::move(failure));
  item.work->finish(std::move(outcome));
}

void end_all(TensorTable& tensor_table, const Ending& ending) {
  std::vector<Outcome> outcomes(ending.items.size());
  for (Outcome& outcome : outcomes) {
    outcome.absent = ending.absent;
    outcome.counts = ending.counts;
  }
  settle(tensor_table, ending.items);
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
