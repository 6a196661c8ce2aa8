#include "ring/shm_room.h"

#include <algorithm>
#include <cstring>

#include "horo/base/shard.h"

namespace horo {
namespace {

constexpr std::size_t kLine = 64;
constexpr std::size_t kShardUnit = 4096;        // bytes: large shards begin on pages of their own
constexpr std::size_t kMostFlatOfShared = 512;  // from there on two waits take less time than all that is copied
constexpr std::size_t kStageBytes = ShmMeeting::kStageBytes;
using Work = ShmMeeting::Work;

// The part of `bytes` that a member sums, in bytes.
Shard shard_of_bytes(std::size_t bytes, int members, int member) {
  const std::size_t unit = bytes < kShardUnit * 4 * static_cast<std::size_t>(members) ? kLine : kShardUnit;
  const Shard units = shard_of((bytes + unit - 1) / unit, members, member);
  const std::size_t begin = std::min(bytes, units.begin * unit);
  return {begin, std::min(bytes, (units.begin + units.size) * unit) - begin};
}

Reduction reduction_of(const Collective& c) {
  return {c.dtype, c.op, {c.prescale, c.postscale, c.divisor}, false, nullptr};
}

}  // namespace

ShmRoom::ShmRoom(const Party& party, std::shared_ptr<ShmArenas> arenas, Allocation mine,
                 const std::vector<std::int64_t>& boards, Patience patience)
    : meeting_(party, std::move(arenas), std::move(mine), boards, patience) {}

// An operation of the caller's own may fail in the middle, and takes tensors whole.
bool ShmRoom::takes(const Collective& c) {
  return c.kind == CollectiveKind::kAllReduce && c.op != ReduceOp::kCustom;
}

void ShmRoom::all_reduce(const Collective& c) {
  plan_sum(c);
  const std::size_t bytes = c.counts[0] * size_of(c.dtype);
  const bool may_be_flat = bytes <= ShmMeeting::kFlatBytes;
  const auto shared = c.in.data == c.out.data && bytes > kMostFlatOfShared
                          ? meeting_.arenas().offset_of(c.out.data, bytes)
                          : std::nullopt;
  if (may_be_flat && !shared) lay_flat(c, bytes);
  meeting_.come(c, {bytes, shared.value_or(ShmMeeting::kNowhere)});
  meeting_.await_all(c);
  const int places = meeting_.places();
  if (places == meeting_.size()) return in_place(c, bytes);
  may_be_flat&& places == 0 ? flat(c, bytes) : staged(c, bytes);
}

// The tree of the last collective is mostly that of the next one.
void ShmRoom::plan_sum(const Collective& c) {
  if (std::ranges::equal(c.contributors, contributors_)) return;
  contributors_ = c.contributors;
  std::vector<std::int64_t> ids;
  givers_.clear();
  for (int member = 0; member < meeting_.size(); ++member) {
    const std::int64_t id = c.contributors[static_cast<std::size_t>(member)];
    if (id == kAbsent) continue;
    ids.push_back(id);
    givers_.push_back(member);
  }
  reducer_ = TreeReducer(canonical_tree(ids));
  inputs_.assign(ids.size(), {});
  few_.assign(ids.size(), {});
}

// input_of(member): where its bytes begin.
template <class InputOf>
void ShmRoom::sum(const Collective& c, std::span<std::byte* const> outs, std::size_t bytes, InputOf input_of) {
  for (std::size_t i = 0; i < givers_.size(); ++i) inputs_[i].data = input_of(givers_[i]);
  reducer_.run(reduction_of(c), inputs_, outs, bytes / size_of(c.dtype));
}

void ShmRoom::lay_flat(const Collective& c, std::size_t bytes) {
  const int index = meeting_.index();
  if (gives(index)) std::copy_n(c.in.data, bytes, meeting_.flat_of(index, bytes, meeting_.number() + 1));
}

void ShmRoom::flat(const Collective& c, std::size_t bytes) {
  if (bytes <= ShmMeeting::kFewBytes) return sum_few(c, bytes);
  sum(c, {&c.out.data, 1}, bytes, [&](int member) { return meeting_.flat_of(member, bytes, meeting_.number()); });
}

// Of whole registers, which takes less time than a part of one: behind the few bytes are zeros.
void ShmRoom::sum_few(const Collective& c, std::size_t bytes) {
  if (givers_.empty()) return;
  for (std::size_t i = 0; i < givers_.size(); ++i) {
    std::memcpy(few_[i].data(), meeting_.flat_of(givers_[i], bytes, meeting_.number()), ShmMeeting::kFewBytes);
    inputs_[i].data = few_[i].data();
  }
  std::byte* const out = few_[0].data();
  reducer_.run(reduction_of(c), inputs_, {&out, 1}, kRegister / size_of(c.dtype));
  std::copy_n(out, bytes, c.out.data);
}

void ShmRoom::in_place(const Collective& c, std::size_t bytes) {
  const Shard mine = shard_of_bytes(bytes, meeting_.size(), meeting_.index());
  places_.clear();
  for (int member = 0; member < meeting_.size(); ++member) {
    places_.push_back(meeting_.buffer_of(member, bytes) + mine.begin);
  }
  sum(c, places_, mine.size, [this](int member) { return places_[static_cast<std::size_t>(member)]; });
  meeting_.reached(Work::kSummed, ++steps_);
  meeting_.await_reached(c, Work::kSummed, steps_);
}

// In step k the next chunk is staged, chunk k is summed, and the sums of the chunk before are taken: so nobody waits
// for what has only just begun. A member that has staged chunk k+1 took the sums of chunk k-2; that it has is known
// when the next but one is staged, so a stage is free again after five.
void ShmRoom::staged(const Collective& c, std::size_t bytes) {
  const auto chunk = [&](std::uint64_t k) {
    const std::size_t begin = k * kStageBytes;
    return Shard{begin, std::min(kStageBytes, bytes - begin)};
  };
  const std::uint64_t chunks = (bytes + kStageBytes - 1) / kStageBytes, first = steps_ + 1;
  static_assert(ShmMeeting::kStages >= 5);
  steps_ += chunks;
  stage(c, chunk(0), first);
  meeting_.reached(Work::kStaged, first);
  for (std::uint64_t k = 0; k < chunks; ++k) {
    if (k + 1 < chunks) {
      stage(c, chunk(k + 1), first + k + 1);
      meeting_.reached(Work::kStaged, first + k + 1);
    }
    meeting_.await_reached(c, Work::kStaged, first + k);
    sum_stages(c, chunk(k), first + k);
    meeting_.reached(Work::kSummed, first + k);
    if (k == 0) continue;
    meeting_.await_reached(c, Work::kSummed, first + k - 1);
    unstage(c, chunk(k - 1), first + k - 1);
  }
  meeting_.await_reached(c, Work::kSummed, steps_);
  unstage(c, chunk(chunks - 1), steps_);
}

// The others' shards of what this member gives.
void ShmRoom::stage(const Collective& c, Shard chunk, std::uint64_t step) {
  if (!gives(meeting_.index())) return;
  std::byte* const to = meeting_.stage_of(meeting_.index(), step);
  for (int member = 0; member < meeting_.size(); ++member) {
    const Shard shard = shard_of_bytes(chunk.size, meeting_.size(), member);
    if (member == meeting_.index()) continue;
    copy_bytes(to + shard.begin, c.in.data + chunk.begin + shard.begin, shard.size);
  }
}

void ShmRoom::sum_stages(const Collective& c, Shard chunk, std::uint64_t step) {
  const int index = meeting_.index();
  const Shard mine = shard_of_bytes(chunk.size, meeting_.size(), index);
  std::byte* const outs[] = {c.out.data + chunk.begin + mine.begin, meeting_.stage_of(index, step) + mine.begin};
  sum(c, outs, mine.size, [&](int member) {
    return member == index ? c.in.data + chunk.begin + mine.begin : meeting_.stage_of(member, step) + mine.begin;
  });
}

void ShmRoom::unstage(const Collective& c, Shard chunk, std::uint64_t step) {
  if (givers_.empty()) return;
  for (int member = 0; member < meeting_.size(); ++member) {
    const Shard shard = shard_of_bytes(chunk.size, meeting_.size(), member);
    if (member == meeting_.index()) continue;
    copy_bytes(c.out.data + chunk.begin + shard.begin, meeting_.stage_of(member, step) + shard.begin, shard.size);
  }
}

bool ShmRoom::gives(int member) const {
  return contributors_[static_cast<std::size_t>(member)] != kAbsent;
}

}  // namespace horo
