#include <algorithm>
#include <cstring>

#include "ring/algorithms/shm/collectives.h"
#include "ring/algorithms/shm/staged_chunks.h"
#include "ring/sharded_result.h"

namespace horo {
namespace {

constexpr std::size_t kClaimBytes = 256 << 10;
// Shards of this size and more are claimed in parts; a smaller one is summed before another member could help.
constexpr std::size_t kLeastClaimedShard = 1 << 20;
// Longer buffers in arenas go in place: the second wait costs less than the copies of the inline path.
constexpr std::size_t kMostInlineOfArena = 2048;

}  // namespace

ShmCollectives::ShmCollectives(const GroupContext& context, std::shared_ptr<ShmArenas> arenas, Allocation own,
                               const std::vector<std::int64_t>& offsets, WaitPatience patience)
    : context_(context), sync_(context, std::move(arenas), std::move(own), offsets, patience) {}

bool ShmCollectives::takes_pieces(const Collective& c) {
  return c.kind == CollectiveKind::kAllReduce && takes(c) &&
         c.counts[0] * size_of(c.dtype) > std::max(ShmSync::kInlineBytes, kMostInlineOfArena);
}

void ShmCollectives::run(const Collective& c) {
  sync_.acquire_next(c);
  if (c.kind != CollectiveKind::kAllReduce) return move(c);
  const std::size_t bytes = c.counts[0] * size_of(c.dtype);
  bytes <= kMostInlineOfArena ? all_reduce_inline(c, bytes) : all_reduce(c, bytes);
}

std::uint64_t ShmCollectives::offset_of(const std::byte* data, std::size_t bytes) const {
  return sync_.arenas().own()->offset_of(data, bytes).value_or(ShmSync::kNoOffset);
}

// ---- Inline.

// While the other members' flags are on their way, the next inline buffer is prefetched and the sum is prepared; in
// this order, since 1 KiB takes 0.074 us so and 0.083 us the other way round.
void ShmCollectives::all_reduce_inline(const Collective& c, std::size_t bytes) {
  write_inline(c, bytes);
  sync_.arrive(c, {signature_shape(c.kind, c.dtype, c.op, 0), bytes});
  sync_.prefetch_inline_buffer(bytes);
  sums_.plan(c.contributors);
  prepare_inline_sum(c, bytes);
  sync_.wait_for_arrival(c);
  sums_.sum_prepared();
}

void ShmCollectives::write_inline(const Collective& c, std::size_t bytes) {
  const int index = sync_.index();
  if (!is_absent(c, index)) std::copy_n(c.in.data, bytes, sync_.inline_buffer(index, bytes, sync_.sync_point() + 1));
}

void ShmCollectives::prepare_inline_sum(const Collective& c, std::size_t bytes) {
  sums_.prepare(c, {&c.out.data, 1}, c.counts[0], [&](int member) -> const std::byte* {
    return member == sync_.index() ? c.in.data : sync_.inline_buffer(member, bytes, sync_.sync_point());
  });
}

// The path follows from what all members announce: in place if all inputs and results are in arenas; inline if none is
// and the data are short enough; else staged.
void ShmCollectives::all_reduce(const Collective& c, std::size_t bytes) {
  sums_.plan(c.contributors);
  const bool may_be_inline = bytes <= ShmSync::kInlineBytes;
  std::uint64_t in = c.pieces.empty() ? offset_of(c.in.data, bytes) : ShmSync::kNoOffset;
  const std::uint64_t out = c.in.data == c.out.data || in == ShmSync::kNoOffset ? in : offset_of(c.out.data, bytes);
  if (out == ShmSync::kNoOffset) in = ShmSync::kNoOffset;
  if (may_be_inline && in == ShmSync::kNoOffset) write_inline(c, bytes);
  sync_.arrive(c, {signature_shape(c.kind, c.dtype, c.op, 0), bytes, in, out});
  sync_.wait_for_arrival(c);
  buffers_.clear();
  results_.clear();
  for (int member = 0; member < sync_.size(); ++member) {
    std::byte* const buffer = sync_.input_of(member, bytes);
    if (buffer == nullptr) continue;
    buffers_.push_back(buffer);
    results_.push_back(sync_.output_of(member, bytes));
  }
  if (buffers_.size() == static_cast<std::size_t>(sync_.size())) return sum_in_place(c, bytes);
  if (!may_be_inline || !buffers_.empty()) return sum_staged(c, bytes);
  prepare_inline_sum(c, bytes);
  sums_.sum_prepared();
}

// ---- In place: each member sums its shard of all members' inputs into all members' results, which may be the inputs.

void ShmCollectives::sum_in_place(const Collective& c, std::size_t bytes) {
  const int size = sync_.size(), index = sync_.index();
  if (bytes < kLeastClaimedShard * static_cast<std::size_t>(size)) {
    sum_range(c, ShardLayout::part_of(bytes, size, index));
  } else {
    for (int k = index; k < index + size; ++k) sum_unclaimed(c, ShardLayout::part_of(bytes, size, k % size), k % size);
  }
  sync_.publish(SyncProgress::kSummed, ++steps_);
  sync_.wait_for_progress(c, SyncProgress::kSummed, steps_);
}

// A member that has a core of its own so sums more than one that shares its core, and none waits for the slowest:
// beside a process that occupies one of two cores 64 MiB take 8.3 ms instead of 9.6 ms.
void ShmCollectives::sum_unclaimed(const Collective& c, Shard shard, int member) {
  const std::uint64_t parts = pieces_for(shard.size, kClaimBytes);
  for (std::uint64_t part = 0; (part = sync_.claim(member, parts)) < parts;) {
    const std::size_t begin = part * kClaimBytes;
    sum_range(c, {shard.begin + begin, std::min(kClaimBytes, shard.size - begin)});
  }
}

void ShmCollectives::sum_range(const Collective& c, Shard range) {
  ranges_ = results_;
  for (std::byte*& at : ranges_) at += range.begin;
  const auto input_of = [&](int member) { return buffers_[static_cast<std::size_t>(member)] + range.begin; };
  sums_.sum(c, ranges_, range.size, input_of);
}

// ---- Staged.

// Round k stages chunk k + 1, sums chunk k and collects the sums of chunk k - 1, so that no member waits for data whose
// production has just begun. A member that has staged chunk k + 1 has collected chunk k - 2, and this member learns
// that in round k + 1, before it stages chunk k + 3. So a chunk's buffers are free again five chunks later.
void ShmCollectives::sum_staged(const Collective& c, std::size_t bytes) {
  const StagedChunks chunks(bytes, steps_);
  const std::uint64_t last = chunks.count() - 1;
  pieces_.plan(c);
  steps_ = chunks.at(last + 1) - 1;
  const auto stage = [&](std::uint64_t k) {
    stage_chunk(c, chunks.of(k), chunks.at(k));
    sync_.publish(SyncProgress::kStaged, chunks.at(k));
  };
  const auto collect = [&](std::uint64_t k) {
    sync_.wait_for_progress(c, SyncProgress::kSummed, chunks.at(k));
    collect_chunk(c, chunks.of(k), chunks.at(k));
  };
  stage(0);
  for (std::uint64_t k = 0; k <= last; ++k) {
    if (k < last) stage(k + 1);
    sync_.wait_for_progress(c, SyncProgress::kStaged, chunks.at(k));
    sum_chunk(c, chunks.of(k), chunks.at(k));
    sync_.publish(SyncProgress::kSummed, chunks.at(k));
    if (k > 0) collect(k - 1);
  }
  collect(last);
}

// Copies the other members' shards of this member's input into its slice buffers.
void ShmCollectives::stage_chunk(const Collective& c, Shard chunk, std::uint64_t step) {
  if (!sums_.contributes(sync_.index())) return;
  std::byte* const to = sync_.slice_buffer(sync_.index(), step);
  for (int member = 0; member < sync_.size(); ++member) {
    const Shard shard = ShardLayout::part_of(chunk.size, sync_.size(), member);
    if (member == sync_.index()) continue;
    const auto copy = [&](const std::byte* in, std::byte*, std::size_t bytes, std::size_t at) {
      sync_.copy_to_slice_buffer(to + shard.begin + at, in, bytes, member);
    };
    pieces_.visit(c, {chunk.begin + shard.begin, shard.size}, copy);
  }
}

// Sums this member's shard into its output and its slice buffer. If a member is behind another cache, the slice buffer
// is written by a copy that bypasses the caches.
void ShmCollectives::sum_chunk(const Collective& c, Shard chunk, std::uint64_t step) {
  const int index = sync_.index();
  const Shard own = ShardLayout::part_of(chunk.size, sync_.size(), index);
  const auto sum = [&](const std::byte* in, std::byte* out, std::size_t bytes, std::size_t at) {
    const std::size_t begin = own.begin + at;
    const bool copies = sync_.is_remote(ShmSync::kAllMembers);
    std::byte* const outs[] = {out, sync_.slice_buffer(index, step) + begin};
    sums_.sum(c, std::span(outs).first(copies ? 1 : 2), bytes, [&](int member) -> const std::byte* {
      return member == index ? in : sync_.slice_buffer(member, step) + begin;
    });
    if (copies && sums_.has_contributors()) {
      sync_.copy_to_slice_buffer(outs[1], out, bytes, ShmSync::kAllMembers);
    }
  };
  pieces_.visit(c, {chunk.begin + own.begin, own.size}, sum);
}

// Copies the other members' sums of their shards into this member's output.
void ShmCollectives::collect_chunk(const Collective& c, Shard chunk, std::uint64_t step) {
  if (!sums_.has_contributors()) return;
  for (int member = 0; member < sync_.size(); ++member) {
    const Shard shard = ShardLayout::part_of(chunk.size, sync_.size(), member);
    if (member == sync_.index()) continue;
    const std::byte* const from = sync_.slice_buffer(member, step) + shard.begin;
    const auto copy = [&](const std::byte*, std::byte* out, std::size_t bytes, std::size_t at) {
      copy_bytes(out, from + at, bytes);
    };
    pieces_.visit(c, {chunk.begin + shard.begin, shard.size}, copy);
  }
}

}  // namespace horo
