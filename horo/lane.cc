#include "horo/lane.h"

#include <cfenv>
#include <cstring>

#include "horo/base/shard.h"
#include "horo/base/thread.h"

namespace horo {
namespace {

// One bucket is on the wire while another is packed ahead.
constexpr std::size_t kBuckets = 2;

std::size_t bytes_of(const std::vector<Item>& items) {
  std::size_t bytes = 0;
  for (const Item& item : items) bytes += item.spec->bytes();
  return bytes;
}

Buffer buffer(const void* data, std::size_t bytes) {
  Buffer buffer;
  buffer.data = const_cast<std::byte*>(static_cast<const std::byte*>(data));  // a Group never writes to `in`
  buffer.bytes = bytes;
  return buffer;
}

// Elements in one row: the product of all dimensions but the first.
std::size_t row_elements(const TensorSpec& spec) {
  std::size_t elements = 1;
  for (std::size_t i = 1; i < spec.shape.size(); ++i) elements *= static_cast<std::size_t>(spec.shape[i]);
  return elements;
}

}  // namespace

Lane::Lane(Group& group, Inbox& inbox, const Config& config, Counters& counters, std::function<void(FailurePtr)> failed)
    : group_(group),
      inbox_(inbox),
      config_(config),
      counters_(counters),
      failed_(std::move(failed)),
      thread_(start_thread("horo lane", [this] { loop(); })) {}

Lane::~Lane() {
  stop();
}

void Lane::run(Job job) {
  MutexLock lock(mutex_);
  released_.emplace_back(std::move(job));
  changed_.notify_all();
}

void Lane::end(Ending ending) {
  MutexLock lock(mutex_);
  released_.emplace_back(std::move(ending));
  changed_.notify_all();
}

void Lane::prepare(FilledPlan filled) {
  if (filled.items.size() < 2) return;  // a bucket of one is not packed
  MutexLock lock(mutex_);
  filled_.push_back(std::move(filled));
  changed_.notify_all();
}

void Lane::stop() {
  {
    MutexLock lock(mutex_);
    stopping_ = true;
    changed_.notify_all();
  }
  if (thread_.joinable()) thread_.join();
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
    }
    failed_(current_failure());
  }
}

// What was released comes before what could be packed ahead.
std::optional<Lane::Task> Lane::next() {
  MutexLock lock(mutex_);
  while (!stopping_ && released_.empty() && filled_.empty()) changed_.wait(mutex_);
  if (stopping_) return std::nullopt;
  std::optional<Task> task;
  if (!released_.empty()) {
    std::visit([&task](auto& t) { task.emplace(std::move(t)); }, released_.front());
    released_.pop_front();
  } else {
    task.emplace(std::move(filled_.front()));
    filled_.pop_front();
  }
  return task;
}

void Lane::perform(const Job& job) {
  if (job.items.size() > 1) {
    reduce_bucket(job);
  } else {
    run_alone(job);
  }
}

void Lane::perform(const Ending& ending) {
  settle(ending.items);
  for (const Item& item : ending.items) {
    if (ending.failure) {
      item.work->fail(ending.failure);
    } else {
      Outcome absent;
      absent.absent = true;
      item.work->finish(std::move(absent));
    }
  }
}

// Only this thread finishes Works while the lane lives, so a plan whose first Work is unfinished has all its memory.
void Lane::perform(const FilledPlan& filled) {
  for (const Item& item : filled.items) {
    if (item.work->finished()) return;
  }
  Bucket& bucket = claim(bytes_of(filled.items));
  pack(bucket, filled.items);
  bucket.packed = filled.items.front().work;
}

void Lane::reduce_bucket(const Job& job) {
  Bucket& bucket = packed_bucket(job);
  const std::size_t bytes = bytes_of(job.items);
  Collective collective = collective_for(job);
  collective.in = collective.out = buffer(bucket.memory.data.get(), bytes);
  collective.in.owner = collective.out.owner = bucket.memory.token;
  collective.counts = {bytes / size_of(collective.dtype)};
  horo::run(group_, collective);
  deliver(bucket, job.items);
}

void Lane::deliver(Bucket& bucket, const std::vector<Item>& items) {
  const std::byte* from = bucket.memory.data.get();
  for (const Item& item : items) {
    const std::size_t bytes = item.spec->bytes();
    if (bytes > 0) std::memcpy(item.submission.out, from, bytes);
    from += bytes;
  }
  counters_.add_unpacked(bytes_of(items));
  bucket.packed = nullptr;
  settle(items);
  for (const Item& item : items) item.work->finish(Outcome{});
}

void Lane::run_alone(const Job& job) {
  const Item& item = job.items.front();
  const TensorSpec& spec = *item.spec;
  Outcome outcome;
  if (spec.kind == CollectiveKind::kAllGather) {
    outcome = gather(job);
  } else {
    Collective collective = collective_for(job);
    collective.counts = {spec.kind == CollectiveKind::kBarrier ? 0 : spec.elements()};
    const void* in = item.submission.absent ? item.submission.out : item.submission.in;
    collective.in = buffer(in, spec.bytes());
    collective.out = buffer(item.submission.out, spec.bytes());
    if (spec.kind == CollectiveKind::kReduceScatter) {
      collective.counts.clear();
      const auto rows = static_cast<std::size_t>(spec.shape.front());
      for (int i = 0; i < group_.size(); ++i) {
        collective.counts.push_back(shard_of(rows, group_.size(), i).size * row_elements(spec));
      }
      collective.out.bytes = collective.counts[static_cast<std::size_t>(group_.rank())] * size_of(spec.dtype);
    }
    if (spec.kind == CollectiveKind::kBarrier) collective.in = collective.out = Buffer{};
    horo::run(group_, collective);
  }
  settle(job.items);
  item.work->finish(std::move(outcome));
}

// The members first tell each other how many rows they bring; that takes a plan number of its own.
Outcome Lane::gather(const Job& job) {
  const Item& item = job.items.front();
  const TensorSpec& spec = *item.spec;
  const auto n = static_cast<std::size_t>(group_.size());
  Outcome outcome;
  outcome.counts.assign(n, 0);
  Collective sizes = collective_for(job);
  sizes.dtype = DType::kInt64;
  sizes.counts.assign(n, 1);
  sizes.in = buffer(&spec.shape.front(), sizeof(std::int64_t));
  sizes.out = buffer(outcome.counts.data(), n * sizeof(std::int64_t));
  horo::run(group_, sizes);

  Collective collective = collective_for(job);
  collective.plan += 1;
  std::size_t elements = 0;
  for (const std::int64_t rows : outcome.counts) {
    collective.counts.push_back(static_cast<std::size_t>(rows) * row_elements(spec));
    elements += collective.counts.back();
  }
  outcome.bytes = elements * size_of(spec.dtype);
  outcome.data = std::make_unique_for_overwrite<std::byte[]>(outcome.bytes);
  collective.in = buffer(item.submission.in, spec.bytes());
  collective.out = buffer(outcome.data.get(), outcome.bytes);
  horo::run(group_, collective);
  return outcome;
}

// A settled tensor may be submitted again at once, so this comes before its Work is finished.
void Lane::settle(const std::vector<Item>& items) {
  std::vector<Key> keys;
  keys.reserve(items.size());
  for (const Item& item : items) keys.push_back(item.work->key());
  inbox_.settle(keys);
}

Lane::Bucket& Lane::packed_bucket(const Job& job) {
  const std::shared_ptr<Work>& first = job.items.front().work;
  for (Bucket& bucket : buckets_) {
    if (job.release.known && bucket.packed == first) return bucket;
  }
  Bucket& bucket = claim(bytes_of(job.items));
  pack(bucket, job.items);
  return bucket;
}

// A bucket to pack into: an empty one, else a new one up to kBuckets, else the one that was packed first (its plan will
// be packed again when it is released).
Lane::Bucket& Lane::claim(std::size_t bytes) {
  Bucket* chosen = nullptr;
  for (Bucket& bucket : buckets_) {
    const bool in_vain = bucket.packed && bucket.packed->finished();
    if (!chosen && (!bucket.packed || in_vain)) chosen = &bucket;
  }
  if (!chosen && buckets_.size() < kBuckets) chosen = &buckets_.emplace_back();
  if (!chosen) {
    buckets_.push_back(std::move(buckets_.front()));
    buckets_.pop_front();
    chosen = &buckets_.back();
  }
  chosen->packed = nullptr;
  if (chosen->memory.bytes < bytes || !chosen->memory.data) chosen->memory = group_.allocate(bytes);
  return *chosen;
}

void Lane::pack(Bucket& bucket, const std::vector<Item>& items) {
  std::byte* to = bucket.memory.data.get();
  for (const Item& item : items) {
    const std::size_t bytes = item.spec->bytes();
    if (bytes > 0) std::memcpy(to, item.submission.in, bytes);
    to += bytes;
  }
  counters_.add_packed(bytes_of(items));
}

Collective Lane::collective_for(const Job& job) const {
  const TensorSpec& spec = *job.items.front().spec;
  Collective collective;
  collective.kind = spec.kind;
  collective.op = spec.op;
  collective.dtype = spec.dtype;
  collective.order = spec.order;
  collective.root = spec.root;
  for (int i = 0; i < group_.size(); ++i) collective.contributors.push_back(i);
  for (const int absent : job.release.absent_ranks) collective.contributors[static_cast<std::size_t>(absent)] = kAbsent;
  collective.prescale = spec.prescale;
  collective.postscale = spec.postscale;
  // Absent members count in the divisor: their part of the mean is zero.
  collective.divisor = spec.op == ReduceOp::kAverage ? group_.size() : 1.0;
  collective.channel = 1;
  collective.plan = 2 * job.release.number;  // and the odd number after it, where a collective has two parts
  collective.key_hash = job.release.key_hash;
  collective.deadline = Clock::now() + config_.deadline;
  collective.what = "tensor '" + spec.name + "'";
  if (job.items.size() > 1) collective.what += " and " + std::to_string(job.items.size() - 1) + " more";
  return collective;
}

}  // namespace horo
