#include <algorithm>
#include <cstring>

#include "horo/base/shard.h"
#include "ring/algorithms/shm/collectives.h"

namespace horo {
namespace {

constexpr std::size_t kSmallShardUnit = 64;
constexpr std::size_t kShardUnit = 4096;  // bytes: large shards begin on pages of their own
constexpr std::size_t kClaimBytes = 256 << 10;
constexpr std::size_t kLeastClaimed = 1 << 20;   // of a member: less it has summed before anybody comes to help
constexpr std::size_t kMostFlatOfShared = 2048;  // from there on two waits take less time than all that is copied

}  // namespace

ShmCollectives::ShmCollectives(const Party& party, std::shared_ptr<ShmArenas> arenas, Allocation mine,
                               const std::vector<std::int64_t>& boards, WaitPatience patience)
    : party_(party), sync_(party, std::move(arenas), std::move(mine), boards, patience) {}

bool ShmCollectives::takes_pieces(const Collective& c) {
  return c.kind == CollectiveKind::kAllReduce && takes(c) &&
         c.counts[0] * size_of(c.dtype) > std::max(ShmSync::kFlatBytes, kMostFlatOfShared);
}

void ShmCollectives::run(const Collective& c) {
  sync_.approach(c);
  if (c.kind != CollectiveKind::kAllReduce) return move(c);
  const std::size_t bytes = c.counts[0] * size_of(c.dtype);
  bytes <= kMostFlatOfShared ? all_reduce_flat(c, bytes) : all_reduce(c, bytes);
}

std::uint64_t ShmCollectives::place_of(const std::byte* data, std::size_t bytes) const {
  return sync_.arenas().offset_of(data, bytes).value_or(ShmSync::kNowhere);
}

// The part of `bytes` that a member sums, in bytes.
Shard ShmCollectives::shard_of_bytes(std::size_t bytes, int members, int member) {
  const std::size_t unit = bytes < kShardUnit * 4 * static_cast<std::size_t>(members) ? kSmallShardUnit : kShardUnit;
  const Shard units = shard_of((bytes + unit - 1) / unit, members, member);
  const std::size_t begin = std::min(bytes, units.begin * unit);
  return {begin, std::min(bytes, (units.begin + units.size) * unit) - begin};
}

// Wherever it lies. The sum is prepared while the others' marks are on their way.
void ShmCollectives::all_reduce_flat(const Collective& c, std::size_t bytes) {
  lay_flat(c, bytes);
  sync_.come(c, {shape_of(c.kind, c.dtype, c.op, 0), bytes});
  sums_.plan(c.contributors);
  prepare_flat(c, bytes);
  sync_.fetch_next_flat(bytes);
  sync_.await_come(c);
  sums_.sum_prepared();
}

void ShmCollectives::all_reduce(const Collective& c, std::size_t bytes) {
  sums_.plan(c.contributors);
  const bool may_be_flat = bytes <= ShmSync::kFlatBytes;
  const bool may_be_here = c.pieces.empty() && c.in.data == c.out.data;
  const std::uint64_t place = may_be_here ? place_of(c.in.data, bytes) : ShmSync::kNowhere;
  if (may_be_flat && place == ShmSync::kNowhere) lay_flat(c, bytes);
  sync_.come(c, {shape_of(c.kind, c.dtype, c.op, 0), bytes, place});
  sync_.await_come(c);
  places_.clear();
  for (int member = 0; member < sync_.size(); ++member) {
    if (std::byte* const its = sync_.in_of(member, bytes)) places_.push_back(its);
  }
  if (places_.size() == static_cast<std::size_t>(sync_.size())) return sum_in_place(c, bytes);
  if (!may_be_flat || !places_.empty()) return sum_staged(c, bytes);
  prepare_flat(c, bytes);
  sums_.sum_prepared();
}

void ShmCollectives::lay_flat(const Collective& c, std::size_t bytes) {
  const int index = sync_.index();
  if (!is_absent(c, index)) std::copy_n(c.in.data, bytes, sync_.flat_of(index, bytes, sync_.number() + 1));
}

void ShmCollectives::prepare_flat(const Collective& c, std::size_t bytes) {
  sums_.prepare(c, {&c.out.data, 1}, c.counts[0], [&](int member) -> const std::byte* {
    return member == sync_.index() ? c.in.data : sync_.flat_of(member, bytes, sync_.number());
  });
}

void ShmCollectives::sum_in_place(const Collective& c, std::size_t bytes) {
  const int size = sync_.size(), index = sync_.index();
  if (bytes < kLeastClaimed * static_cast<std::size_t>(size)) {
    sum_places(c, shard_of_bytes(bytes, size, index));
  } else {
    for (int k = index; k < index + size; ++k) sum_unclaimed(c, shard_of_bytes(bytes, size, k % size), k % size);
  }
  sync_.reached(Work::kSummed, ++steps_);
  sync_.await_reached(c, Work::kSummed, steps_);
}

// So who has a core to himself does more than who shares one with somebody else, and nobody waits for the slowest.
void ShmCollectives::sum_unclaimed(const Collective& c, Shard shard, int member) {
  const std::uint64_t parts = pieces_for(shard.size, kClaimBytes);
  for (std::uint64_t part = 0; (part = sync_.claim(member, parts)) < parts;) {
    const std::size_t begin = part * kClaimBytes;
    sum_places(c, {shard.begin + begin, std::min(kClaimBytes, shard.size - begin)});
  }
}

void ShmCollectives::sum_places(const Collective& c, Shard part) {
  parts_ = places_;
  for (std::byte*& place : parts_) place += part.begin;
  sums_.sum(c, parts_, part.size, [this](int member) { return parts_[static_cast<std::size_t>(member)]; });
}

// The chunk at k is staged, summed and taken in the step numbered at(k), whose stage it fills, and those after it if it
// is larger: large ones are cut into large chunks, as members wait for each other twice for each.
struct ShmCollectives::Chunks {
  std::size_t bytes;
  std::uint64_t stages;  // of each
  std::uint64_t first;

  static constexpr std::size_t kLarge = 1 << 20;
  static constexpr std::uint64_t kStagesOfLarge = 4;
  static_assert(ShmSync::kStages % kStagesOfLarge == 0, "the stages of a chunk lie side by side");

  Chunks(std::size_t bytes, std::uint64_t steps_before)
      : bytes(bytes), stages(bytes >= kLarge ? kStagesOfLarge : 1), first((steps_before / stages + 1) * stages) {}

  std::uint64_t count() const { return (bytes + stages * kStageBytes - 1) / (stages * kStageBytes); }
  std::uint64_t at(std::uint64_t k) const { return first + k * stages; }
  Shard of(std::uint64_t k) const {
    const std::size_t begin = k * stages * kStageBytes;
    return {begin, std::min(stages * kStageBytes, bytes - begin)};
  }
};

// In step k the next chunk is staged, chunk k is summed, and the sums of the chunk before are taken: so nobody waits
// for what has only just begun. A member that has staged chunk k+1 took the sums of chunk k-2; that it has is known
// when the next but one is staged, so a stage is free again after five.
void ShmCollectives::sum_staged(const Collective& c, std::size_t bytes) {
  const Chunks chunks(bytes, steps_);
  const std::uint64_t last = chunks.count() - 1;
  pieces_.plan(c);
  static_assert(ShmSync::kStages / Chunks::kStagesOfLarge >= 5);
  steps_ = chunks.at(last + 1) - 1;
  const auto stage_one = [&](std::uint64_t k) {
    stage(c, chunks.of(k), chunks.at(k));
    sync_.reached(Work::kStaged, chunks.at(k));
  };
  const auto take_one = [&](std::uint64_t k) {
    sync_.await_reached(c, Work::kSummed, chunks.at(k));
    unstage(c, chunks.of(k), chunks.at(k));
  };
  stage_one(0);
  for (std::uint64_t k = 0; k <= last; ++k) {
    if (k < last) stage_one(k + 1);
    sync_.await_reached(c, Work::kStaged, chunks.at(k));
    sum_stages(c, chunks.of(k), chunks.at(k));
    sync_.reached(Work::kSummed, chunks.at(k));
    if (k > 0) take_one(k - 1);
  }
  take_one(last);
}

// The others' shards of what this member gives.
void ShmCollectives::stage(const Collective& c, Shard chunk, std::uint64_t step) {
  if (!sums_.gives(sync_.index())) return;
  std::byte* const to = sync_.stage_of(sync_.index(), step);
  for (int member = 0; member < sync_.size(); ++member) {
    const Shard shard = shard_of_bytes(chunk.size, sync_.size(), member);
    if (member == sync_.index()) continue;
    const auto lay = [&](const std::byte* in, std::byte*, std::size_t bytes, std::size_t at) {
      sync_.pass_on(to + shard.begin + at, in, bytes, member);
    };
    pieces_.visit(c, {chunk.begin + shard.begin, shard.size}, lay);
  }
}

void ShmCollectives::sum_stages(const Collective& c, Shard chunk, std::uint64_t step) {
  const int index = sync_.index();
  const Shard mine = shard_of_bytes(chunk.size, sync_.size(), index);
  const auto sum = [&](const std::byte* in, std::byte* out, std::size_t bytes, std::size_t at) {
    const std::size_t begin = mine.begin + at;
    const bool is_apart = sync_.is_far(ShmSync::kEveryone);
    std::byte* const outs[] = {out, sync_.stage_of(index, step) + begin};
    sums_.sum(c, std::span(outs).first(is_apart ? 1 : 2), bytes, [&](int member) -> const std::byte* {
      return member == index ? in : sync_.stage_of(member, step) + begin;
    });
    if (is_apart && sums_.has_givers()) sync_.pass_on(outs[1], out, bytes, ShmSync::kEveryone);
  };
  pieces_.visit(c, {chunk.begin + mine.begin, mine.size}, sum);
}

void ShmCollectives::unstage(const Collective& c, Shard chunk, std::uint64_t step) {
  if (!sums_.has_givers()) return;
  for (int member = 0; member < sync_.size(); ++member) {
    const Shard shard = shard_of_bytes(chunk.size, sync_.size(), member);
    if (member == sync_.index()) continue;
    const std::byte* const from = sync_.stage_of(member, step) + shard.begin;
    const auto take = [&](const std::byte*, std::byte* out, std::size_t bytes, std::size_t at) {
      copy_bytes(out, from + at, bytes);
    };
    pieces_.visit(c, {chunk.begin + shard.begin, shard.size}, take);
  }
}

}  // namespace horo
