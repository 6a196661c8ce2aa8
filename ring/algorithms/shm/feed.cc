// In a turn of slices (schedule_run.cc) all members of all hosts do the same in the same order: what a member waits for
// here, others did earlier in theirs, so somebody can always go on.

#include "ring/algorithms/shm/feed.h"

#include <algorithm>

#include "ring/algorithms/shm/moves.h"
#include "ring/reduce/reduce.h"

namespace horo {

Shard HostShare::part(int member, std::size_t slice) const {
  const Part& mine = chunks[static_cast<std::size_t>(member)];
  if (mine.count == 0) return {};
  const std::size_t each = size_of(c.dtype), begin = slices.begin(slice, Schedule::kIn, mine.first);
  const int last = mine.first + mine.count - 1;
  const std::size_t end = slices.begin(slice, Schedule::kIn, last) + slices.elements(slice, last);
  return {begin * each, (end - begin) * each};
}

Shard HostShare::whole(std::size_t slice) const {
  const Shard elements = slices.whole(slice);
  return {elements.begin * size_of(c.dtype), elements.size * size_of(c.dtype)};
}

ShmFeed::ShmFeed(const Party& host, std::shared_ptr<ShmArenas> arenas, Allocation mine,
                 const std::vector<std::int64_t>& boards, WaitPatience patience)
    : sync_(host, std::move(arenas), std::move(mine), boards, patience) {
  sync_.move_messages();
}

// Where a member's stages for a slice are: its input of the others' parts, then the result of its own.
std::byte* ShmFeed::lot(int member, std::size_t slice) const {
  return sync_.stage_of(member, (first_ + slice) * kStagesOfSlice);
}

std::byte* ShmFeed::in_lot(int member, std::size_t slice, Shard part) const {
  return lot(member, slice) + (part.begin - share_->whole(slice).begin);
}

// ---- The two ends.

void ShmFeed::begin(const HostShare& share) {
  share_ = &share;
  sums_.plan(share.contributors);
  pieces_.plan(c());
  const std::size_t bytes = c().counts[0] * size_of(c().dtype);
  const int index = sync_.index();
  sync_.approach(c());
  const bool may_be_here = bytes > ShmSync::kFewBytes && c().pieces.empty() && c().in.data == c().out.data;
  const auto place = may_be_here ? sync_.arenas().offset_of(c().in.data, bytes) : std::nullopt;
  if (is_flat(bytes) && !place && sums_.gives(index)) {
    std::copy_n(c().in.data, bytes, sync_.flat_of(index, bytes, sync_.number() + 1));
  }
  sync_.come(c(), {shape_of(c().kind, c().dtype, c().op, 0), bytes, place.value_or(ShmSync::kNowhere)});
  sync_.await_come(c());
  find_places(bytes);
  first_ = steps_ + 1;
  steps_ += share.slices.count();
}

// All lie in arenas, or none does, or some.
void ShmFeed::find_places(std::size_t bytes) {
  places_.clear();
  for (int member = 0; bytes > ShmSync::kFewBytes && member < sync_.size(); ++member) {
    if (std::byte* const its = sync_.in_of(member, bytes)) places_.push_back(its);
  }
  const bool all = places_.size() == static_cast<std::size_t>(sync_.size());
  way_ = all ? Way::kInPlace : is_flat(bytes) && places_.empty() ? Way::kFlat : Way::kStaged;
}

void ShmFeed::end() {
  if (way_ != Way::kInPlace) {
    collect(share_->slices.count() - 1);
  } else {
    sync_.reached(Work::kTaken, steps_);
    sync_.await_reached(c(), Work::kTaken, steps_);
  }
}

void ShmFeed::give_up() {
  sync_.give_up();
  sync_.await_end(c(), Work::kTaken, steps_);
}

// ---- A slice's input.

void ShmFeed::bring(std::size_t slice, std::byte* in) {
  const int index = sync_.index();
  if (way_ == Way::kStaged) {
    if (slice == 0) stage(0);
    if (slice + 1 < share_->slices.count()) stage(slice + 1);
    sync_.await_reached(c(), Work::kStaged, first_ + slice);
  }
  const Shard mine = share_->part(index, slice);
  if (mine.size == 0) return;
  const std::size_t each = size_of(c().dtype), partial = size_of(accumulator_of(c().dtype));
  const auto sum = [&](const std::byte* own, std::byte*, std::size_t bytes, std::size_t at) {
    const Shard part{mine.begin + at, bytes};
    sums_.sum_partial(c(), in + at / each * partial, bytes, [&](int member) -> const std::byte* {
      if (way_ == Way::kInPlace) return places_[static_cast<std::size_t>(member)] + part.begin;
      if (member == index) return own;
      if (way_ == Way::kStaged) return in_lot(member, slice, part);
      return sync_.flat_of(member, share_->whole(0).size, sync_.number()) + part.begin;
    });
  };
  pieces_.visit(c(), mine, sum);
}

// The others' parts. They have taken what was in the stages before when they are a lap of them further.
void ShmFeed::stage(std::size_t slice) {
  static_assert(kLots >= kSlots + 2);
  if (slice >= kLots) sync_.await_reached(c(), Work::kTaken, first_ + slice - kLots);
  for (int member = 0; member < sync_.size() && sums_.gives(sync_.index()); ++member) {
    const Shard part = share_->part(member, slice);
    if (member == sync_.index() || part.size == 0) continue;
    std::byte* const to = in_lot(sync_.index(), slice, part);
    pieces_.visit(c(), part, [&](const std::byte* in, std::byte*, std::size_t bytes, std::size_t at) {
      sync_.pass_on(to + at, in, bytes, member);
    });
  }
  sync_.reached(Work::kStaged, first_ + slice);
}

// ---- And its output.

void ShmFeed::take(std::size_t slice, const std::byte* out) {
  const int index = sync_.index();
  const Shard mine = share_->part(index, slice);
  if (way_ == Way::kInPlace) {
    for (std::byte* place : places_) copy_bytes(place + mine.begin, out, mine.size);
    return;
  }
  if (mine.size > 0) {
    sync_.pass_on(in_lot(index, slice, mine), out, mine.size, ShmSync::kEveryone);
    pieces_.visit(c(), mine, [out](const std::byte*, std::byte* own, std::size_t bytes, std::size_t at) {
      copy_bytes(own, out + at, bytes);
    });
  }
  sync_.reached(Work::kSummed, first_ + slice);
  if (slice > 0) collect(slice - 1);
}

// The others' results, a slice later, so that nobody waits for what has only just come.
void ShmFeed::collect(std::size_t slice) {
  for (int member = 0; member < sync_.size(); ++member) {
    const Shard part = share_->part(member, slice);
    if (member == sync_.index() || part.size == 0) continue;
    sync_.await_reached(c(), Work::kSummed, first_ + slice, member);
    const std::byte* const from = in_lot(member, slice, part);
    pieces_.visit(c(), part, [from](const std::byte*, std::byte* own, std::size_t bytes, std::size_t at) {
      copy_bytes(own, from + at, bytes);
    });
  }
  sync_.reached(Work::kTaken, first_ + slice);
}

}  // namespace horo
