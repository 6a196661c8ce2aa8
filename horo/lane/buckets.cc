#include "horo/lane/buckets.h"

#include <algorithm>
#include <cstring>
#include <utility>

namespace horo {
namespace {

constexpr std::size_t kBuckets = 2;
constexpr std::size_t kMostSpare = 64;
constexpr std::size_t kMostWaste = 2;
constexpr std::size_t kLeastInPieces = 256 << 10;
constexpr std::size_t kLeastMeanPiece = 1 << 10;

}  // namespace

// A large tensor would need new memory if a small one had taken memory that is much larger.
Allocation SpareMemory::take(std::size_t bytes) {
  const std::size_t most = std::max(kMostWaste * bytes, kSmallBytes);
  auto best = spare_.end();
  for (auto one = spare_.begin(); one != spare_.end(); ++one) {
    const bool fits = one->bytes >= bytes && one->bytes <= most;
    if (fits && (best == spare_.end() || one->bytes < best->bytes)) best = one;
  }
  if (best == spare_.end()) return {};
  Allocation memory = std::move(*best);
  spare_.erase(best);
  return memory;
}

Allocation SpareMemory::give_back(Allocation memory, std::size_t most) {
  if (!memory.data) return {};
  spare_.push_back(std::move(memory));
  if (spare_.size() <= most) return {};
  Allocation oldest = std::move(spare_.front());
  spare_.erase(spare_.begin());
  return oldest;
}

// Where all members share memory, a collective over pieces copies only the parts that other members reduce. So packing
// pays only for small tensors.
bool takes_pieces(std::span<const Item> items, const Collective& like, const Group& group) {
  const std::size_t bytes = bytes_of(items);
  const bool pays = bytes >= kLeastInPieces && bytes / items.size() >= kLeastMeanPiece;
  return pays && contiguous_memory(items) == nullptr && group.takes_pieces(like);
}

void Buckets::prepack(std::span<const Item> items) {
  Bucket& bucket = claim(bytes_of(items));
  pack(bucket, items);
  bucket.packed = items.front().work;
}

void Buckets::place(const Job& job, const Group& group, Collective& collective) {
  current_ = nullptr;
  if (takes_pieces(*job.items, collective, group)) {
    pieces_.clear();
    for (const Item& item : *job.items) {
      pieces_.push_back({static_cast<const std::byte*>(item.submission.in),
                         static_cast<std::byte*>(item.submission.out), item.bytes});
    }
    collective.pieces = pieces_;
    return;
  }
  std::byte* memory = contiguous_memory(*job.items);
  if (memory == nullptr) {
    current_ = &bucket_of(job);
    memory = current_->memory.data.get();
  }
  collective.in = collective.out = buffer_of(memory, bytes_of(*job.items));
}

void Buckets::unpack(std::span<const Item> items) {
  if (current_ == nullptr) return;
  const std::byte* from = current_->memory.data.get();
  for (const Item& item : items) {
    const std::size_t bytes = item.bytes;
    if (bytes > 0) std::memcpy(item.submission.out, from, bytes);
    from += bytes;
  }
  counters_.add_unpacked(bytes_of(items));
  drop_packed();
}

void Buckets::drop_packed() {
  if (current_ != nullptr) current_->packed = nullptr;
}

Buckets::Bucket& Buckets::bucket_of(const Job& job) {
  const std::shared_ptr<Work>& first = job.first().work;
  for (Bucket& bucket : buckets_) {
    if (job.release.known && bucket.packed == first) return bucket;
  }
  Bucket& bucket = claim(bytes_of(*job.items));
  pack(bucket, *job.items);
  return bucket;
}

// A bucket to pack into: an empty one, else a new one up to kBuckets, else the one that was packed first. The plan in
// the latter is packed again when it is released.
Buckets::Bucket& Buckets::claim(std::size_t bytes) {
  Bucket* chosen = nullptr;
  for (Bucket& bucket : buckets_) {
    const bool is_stale = bucket.packed && bucket.packed->finished();
    if (!chosen && (!bucket.packed || is_stale)) chosen = &bucket;
  }
  if (!chosen && buckets_.size() < kBuckets) chosen = &buckets_.emplace_back();
  if (!chosen) {
    buckets_.push_back(std::move(buckets_.front()));
    buckets_.pop_front();
    chosen = &buckets_.back();
  }
  chosen->packed = nullptr;
  if (chosen->memory.bytes >= bytes && chosen->memory.data) return *chosen;
  give_back(std::move(chosen->memory));
  chosen->memory = take(std::max<std::size_t>(bytes, 1));
  return *chosen;
}

Allocation Buckets::take_packed(const Job& job) {
  Bucket& bucket = bucket_of(job);
  bucket.packed = nullptr;
  return std::exchange(bucket.memory, {});
}

Allocation Buckets::take(std::size_t bytes) {
  if (bytes == 0) return {};
  if (Allocation memory = spare_.take(bytes); memory.data) return memory;
  return group_.allocate(keeps_spare_ ? std::max(bytes, SpareMemory::kSmallBytes) : bytes);
}

void Buckets::give_back(Allocation memory) {
  if (keeps_spare_) spare_.give_back(std::move(memory), kMostSpare);
}

// All that a round holds are kept: the pages of one that is freed stay for minutes, because others may still read them.
Allocation Buckets::take_shard(std::size_t bytes) {
  most_shards_ = std::max(most_shards_, ++taken_shards_);
  if (Allocation memory = shards_.take(bytes); memory.data) return memory;
  return group_.sharded()->allocate_shard(std::max(bytes, SpareMemory::kSmallBytes));
}

void Buckets::give_back_shard(Allocation memory) {
  --taken_shards_;
  shards_.give_back(std::move(memory), most_shards_);
}

void Buckets::take_memory(Buckets& unused) {
  spare_ = std::move(unused.spare_);
  for (Bucket& bucket : unused.buckets_) give_back(std::move(bucket.memory));
  unused.buckets_.clear();
  shards_ = std::move(unused.shards_);
  most_shards_ = unused.most_shards_;
}

void Buckets::pack(Bucket& bucket, std::span<const Item> items) {
  std::byte* to = bucket.memory.data.get();
  for (const Item& item : items) {
    const std::size_t bytes = item.bytes;
    if (bytes > 0) std::memcpy(to, item.submission.in, bytes);
    to += bytes;
  }
  counters_.add_packed(bytes_of(items));
}

}  // namespace horo
