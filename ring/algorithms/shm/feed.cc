// No deadlock: all members of all hosts supply and consume slices in the same order (schedule_run.cc), and each wait
// here is for an earlier step of another member.

#include "ring/algorithms/shm/feed.h"

#include <algorithm>

#include "ring/reduce/reduce.h"

namespace horo {

Shard HostShare::part(int member, std::size_t slice) const {
  const Part& own = chunks[static_cast<std::size_t>(member)];
  if (own.count == 0) return {};
  const std::size_t each = size_of(c.dtype), begin = slices.begin(slice, Schedule::kIn, own.first);
  const int last = own.first + own.count - 1;
  const std::size_t end = slices.begin(slice, Schedule::kIn, last) + slices.elements(slice, last);
  return {begin * each, (end - begin) * each};
}

Shard HostShare::whole(std::size_t slice) const {
  const Shard elements = slices.whole(slice);
  return {elements.begin * size_of(c.dtype), elements.size * size_of(c.dtype)};
}

// The buffers of a slice hold the member's data for the other members' parts, then its result of its own part.
std::byte* ShmFeed::buffer_of(int member, std::size_t slice, Shard part) const {
  std::byte* const buffers = sync_.slice_buffer(member, (first_ + slice) * kBuffersOfSlice);
  return buffers + (part.begin - share_->whole(slice).begin);
}

// ---- Begin and end.

void ShmFeed::begin(const HostShare& share) {
  share_ = &share;
  sums_.plan(share.contributors);
  pieces_.plan(c());
  const std::size_t bytes = c().counts[0] * size_of(c().dtype);
  const int index = sync_.index();
  sync_.acquire_next(c());
  const bool may_be_in_place = bytes > kFlagPayloadBytes && c().pieces.empty() && c().in.data == c().out.data;
  const auto offset = may_be_in_place ? sync_.arenas().own()->offset_of(c().in.data, bytes) : std::nullopt;
  if (is_inline(bytes) && !offset && sums_.contributes(index)) {
    std::copy_n(c().in.data, bytes, sync_.inline_buffer(index, bytes, sync_.sync_point() + 1));
  }
  sync_.arrive(c(), {signature_shape(c().kind, c().dtype, c().op, 0), bytes, offset.value_or(ShmSync::kNoOffset)});
  sync_.wait_for_arrival(c());
  choose_path(bytes);
  first_ = sync_.take_steps(share.slices.count());
}

// In place if all buffers of the host are in arenas; inline if none is and the data are short enough; else staged.
void ShmFeed::choose_path(std::size_t bytes) {
  buffers_.clear();
  for (int member = 0; bytes > kFlagPayloadBytes && member < sync_.size(); ++member) {
    if (std::byte* const buffer = sync_.input_of(member, bytes)) buffers_.push_back(buffer);
  }
  const bool are_all_in_arenas = buffers_.size() == static_cast<std::size_t>(sync_.size());
  const bool may_be_inline = is_inline(bytes) && buffers_.empty();
  path_ = are_all_in_arenas ? DataPath::kInPlace : may_be_inline ? DataPath::kInline : DataPath::kStaged;
}

void ShmFeed::end() {
  if (path_ != DataPath::kInPlace) {
    collect(share_->slices.count() - 1);
  } else {
    sync_.publish(SyncProgress::kConsumed, sync_.last_step());
    sync_.wait_for_progress(c(), SyncProgress::kConsumed, sync_.last_step());
  }
}

void ShmFeed::give_up() {
  sync_.give_up();
  sync_.wait_for_end(c(), SyncProgress::kConsumed, sync_.last_step());
}

// ---- Input of a slice.

void ShmFeed::fill_input(std::size_t slice, std::byte* in) {
  const int index = sync_.index();
  if (path_ == DataPath::kStaged) {
    if (slice == 0) stage(0);
    if (slice + 1 < share_->slices.count()) stage(slice + 1);
    sync_.wait_for_progress(c(), SyncProgress::kStaged, first_ + slice);
  }
  const Shard own = share_->part(index, slice);
  if (own.size == 0) return;
  const std::size_t each = size_of(c().dtype), partial = accumulator_bytes(c().dtype, c().op);
  const auto sum = [&](const std::byte* own_in, std::byte*, std::size_t bytes, std::size_t at) {
    const Shard part{own.begin + at, bytes};
    sums_.sum_partial(c(), in + at / each * partial, bytes, [&](int member) -> const std::byte* {
      if (path_ == DataPath::kInPlace) return buffers_[static_cast<std::size_t>(member)] + part.begin;
      if (member == index) return own_in;
      if (path_ == DataPath::kStaged) return buffer_of(member, slice, part);
      return sync_.inline_buffer(member, share_->whole(0).size, sync_.sync_point()) + part.begin;
    });
  };
  pieces_.visit(c(), own, sum);
}

// Copies the other members' parts into the slice's buffers, after all members have consumed the slice that the buffers
// held before.
void ShmFeed::stage(std::size_t slice) {
  static_assert(kSlicesInBuffers >= kSlots + 2, "a slice is staged ahead, and results are collected a slice later");
  if (slice >= kSlicesInBuffers) {
    sync_.wait_for_progress(c(), SyncProgress::kConsumed, first_ + slice - kSlicesInBuffers);
  }
  for (int member = 0; member < sync_.size() && sums_.contributes(sync_.index()); ++member) {
    const Shard part = share_->part(member, slice);
    if (member == sync_.index() || part.size == 0) continue;
    std::byte* const to = buffer_of(sync_.index(), slice, part);
    pieces_.visit(c(), part, [&](const std::byte* in, std::byte*, std::size_t bytes, std::size_t at) {
      sync_.copy_to_slice_buffer(to + at, in, bytes, member);
    });
  }
  sync_.publish(SyncProgress::kStaged, first_ + slice);
}

// ---- Output of a slice.

void ShmFeed::take_output(std::size_t slice, const std::byte* out) {
  const int index = sync_.index();
  const Shard own = share_->part(index, slice);
  if (path_ == DataPath::kInPlace) {
    for (std::byte* buffer : buffers_) copy_bytes(buffer + own.begin, out, own.size);
    return;
  }
  if (own.size > 0) {
    sync_.copy_to_slice_buffer(buffer_of(index, slice, own), out, own.size, ShmSync::kAllMembers);
    pieces_.visit(c(), own, [out](const std::byte*, std::byte* own_out, std::size_t bytes, std::size_t at) {
      copy_bytes(own_out, out + at, bytes);
    });
  }
  sync_.publish(SyncProgress::kSummed, first_ + slice);
  if (slice > 0) collect(slice - 1);
}

// Copies the other members' results into this member's output, a slice later than its own, so that it does not wait for
// results that have only just arrived.
void ShmFeed::collect(std::size_t slice) {
  for (int member = 0; member < sync_.size(); ++member) {
    const Shard part = share_->part(member, slice);
    if (member == sync_.index() || part.size == 0) continue;
    sync_.wait_for_progress(c(), SyncProgress::kSummed, first_ + slice, member);
    const std::byte* const from = buffer_of(member, slice, part);
    pieces_.visit(c(), part, [from](const std::byte*, std::byte* own_out, std::size_t bytes, std::size_t at) {
      copy_bytes(own_out, from + at, bytes);
    });
  }
  sync_.publish(SyncProgress::kConsumed, first_ + slice);
}

}  // namespace horo
