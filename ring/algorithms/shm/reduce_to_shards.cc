// All_reduces whose result stays divided: each member writes the sums of its shard to memory of its own, and no member
// writes to another's. The others read them later, when they have agreed that all sums are complete.
#include "ring/algorithms/shm/collectives.h"
#include "ring/algorithms/shm/staged_chunks.h"

namespace horo {
namespace {

constexpr std::uint64_t kToShards = std::uint64_t{1} << 32;  // in the shape of the signature

}  // namespace

bool ShmCollectives::takes_shards(const Collective& c) {
  return c.kind == CollectiveKind::kAllReduce && takes(c) &&
         c.counts[0] * size_of(c.dtype) >= ShmSync::kSliceBufferBytes;
}

ShardLayout ShmCollectives::layout_for(const Collective& c, int members) {
  const std::size_t bytes = c.counts[0] * size_of(c.dtype);
  return {bytes, StagedChunks::chunk_bytes_for(bytes), members};
}

// The shard is written when all members have arrived, so after they have read what it held before.
bool ShmCollectives::reduce_to_shards(const Collective& c, Buffer own, ShardedResult& result) {
  result.layout = layout_for(c, sync_.size());
  const std::size_t bytes = result.layout.bytes;
  sync_.acquire_next(c);
  sums_.plan(c.contributors);
  const std::uint64_t in = c.pieces.empty() ? offset_of(c.in.data, bytes) : ShmSync::kNoOffset;
  const std::uint64_t shard = own.data == nullptr ? ShmSync::kNoOffset : offset_of(own.data, own.bytes);
  sync_.arrive(c, {signature_shape(c.kind, c.dtype, c.op, kToShards), bytes, in, shard});
  sync_.wait_for_arrival(c);
  if (!find_shards(c, result)) return false;
  const bool is_in_place = std::find(buffers_.begin(), buffers_.end(), nullptr) == buffers_.end();
  is_in_place ? sum_to_shard(c, result.layout, own.data) : stage_to_shard(c, result.layout, own.data);
  sync_.publish(SyncProgress::kSummed, steps_);
  sync_.wait_for_progress(c, SyncProgress::kSummed, steps_);
  return true;
}

// The members' inputs too. False: a member has no memory for its shard.
bool ShmCollectives::find_shards(const Collective& c, ShardedResult& result) {
  buffers_.clear();
  result.shards.clear();
  for (int member = 0; member < sync_.size(); ++member) {
    buffers_.push_back(sync_.input_of(member, c.counts[0] * size_of(c.dtype)));
    result.shards.push_back(sync_.output_of(member, result.layout.shard_bytes(member)));
  }
  const bool are_complete = std::find(result.shards.begin(), result.shards.end(), nullptr) == result.shards.end();
  if (!are_complete) result.shards.clear();
  return are_complete;
}

void ShmCollectives::sum_to_shard(const Collective& c, const ShardLayout& layout, std::byte* own) {
  for (std::size_t k = 0; k * layout.chunk_bytes < layout.bytes; ++k) {
    const Shard part = layout.part(k, sync_.index());
    const std::size_t begin = layout.chunk(k).begin + part.begin;
    std::byte* const out = own + layout.place(k, sync_.index());
    sums_.sum(c, {&out, 1}, part.size, [&](int m) { return buffers_[static_cast<std::size_t>(m)] + begin; });
  }
  ++steps_;
}

// As sum_staged(), without a collection: a member that has staged chunk k + 1 has summed chunk k - 1.
void ShmCollectives::stage_to_shard(const Collective& c, const ShardLayout& layout, std::byte* own) {
  const StagedChunks chunks(layout.bytes, steps_);
  const std::uint64_t last = chunks.count() - 1;
  const int index = sync_.index();
  pieces_.plan(c);
  const auto stage = [&](std::uint64_t k) {
    stage_chunk(c, chunks.of(k), chunks.at(k));
    sync_.publish(SyncProgress::kStaged, chunks.at(k));
  };
  stage(0);
  for (std::uint64_t k = 0; k <= last; ++k) {
    if (k < last) stage(k + 1);
    sync_.wait_for_progress(c, SyncProgress::kStaged, chunks.at(k));
    const Shard part = layout.part(k, index);
    std::byte* const sums = own + layout.place(k, index);
    const auto sum = [&](const std::byte* in, std::byte*, std::size_t bytes, std::size_t at) {
      std::byte* const out = sums + at;
      sums_.sum(c, {&out, 1}, bytes, [&](int member) -> const std::byte* {
        return member == index ? in : sync_.slice_buffer(member, chunks.at(k)) + part.begin + at;
      });
    };
    pieces_.visit(c, {chunks.of(k).begin + part.begin, part.size}, sum);
  }
  steps_ = chunks.at(last + 1) - 1;
}

}  // namespace horo
