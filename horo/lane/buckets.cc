#include "horo/lane/buckets.h"

#include <algorithm>
#include <cstring>
#include <utility>

namespace horo {
namespace {

constexpr std::size_t kBuckets = 2;

}  // namespace

void Buckets::prepack(std::span<const Item> items) {
  Bucket& bucket = claim(bytes_of(items));
  pack(bucket, items);
  bucket.packed = items.front().work;
}

Buffer Buckets::packed(const Job& job) {
  const std::size_t bytes = bytes_of(*job.items);
  current_ = nullptr;
  if (std::byte* in_place = contiguous_memory(*job.items)) return buffer_of(in_place, bytes);
  current_ = &bucket_of(job);
  return buffer_of(current_->memory.data.get(), bytes);
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
  current_->packed = nullptr;
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

// The smallest one that is large enough. Where none is, the largest is freed, so that sizes that grow do not pile up.
Allocation Buckets::take(std::size_t bytes) {
  if (bytes == 0) return {};
  const auto is_smaller = [](const Allocation& a, const Allocation& b) { return a.bytes < b.bytes; };
  const auto fits = [bytes](const Allocation& one) { return one.bytes >= bytes; };
  std::sort(spare_.begin(), spare_.end(), is_smaller);
  const auto found = std::find_if(spare_.begin(), spare_.end(), fits);
  if (found == spare_.end()) {
    if (!spare_.empty()) spare_.pop_back();
    return group_.allocate(bytes);
  }
  Allocation memory = std::move(*found);
  spare_.erase(found);
  return memory;
}

void Buckets::give_back(Allocation memory) {
  if (memory.data) spare_.push_back(std::move(memory));
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
