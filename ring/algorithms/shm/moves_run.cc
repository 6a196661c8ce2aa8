// The collectives other than all_reduce. Each is one movement (ShmMoves): members expose data, and members read ranges
// of the data that others expose.
//
// A member must not change exposed data before they were read. Data in an arrival flag, an inline buffer or a slice
// buffer are copies, so their member may return at once. Data in the member's own buffer are not, so that member waits
// until its readers have published kConsumed.
//
// Slice buffers are free at the beginning of a large collective: all members wait for all at its sync point, and a
// member that arrives has finished all earlier collectives. Within the collective a slice buffer is free again when all
// its readers have consumed the slice that it held.

#include <algorithm>
#include <cstring>

#include "ring/algorithms/shm/collectives.h"
#include "ring/schedule/schedule_parts.h"

namespace horo {
namespace {

constexpr std::size_t kSliceUnit = 4096;
constexpr std::size_t kMostShortSlices = 8;  // of a range that fits into few buffers, so that readers begin early
constexpr std::size_t kCutUnit = 64;
static_assert(ShmMoves::kNone == ShmSync::kAllMembers, "without an only reader, all members are waited for");

std::size_t rounded_up(std::size_t bytes, std::size_t unit) {
  return (bytes + unit - 1) / unit * unit;
}

}  // namespace

void ShmCollectives::move(const Collective& c) {
  moves_.plan(c, sync_.size(), sync_.index());
  if (reduces(c.kind)) sums_.plan(c.contributors);
  if (moves_.most_exposed() <= ShmSync::kInlineBytes) return move_inline(c);
  if (!needs_own_output(context_, c)) return move_large(c, c.out.data, false);
  const auto memory = context_.scratch.take(moves_.result());
  const auto out = memory.part(0, moves_.result());
  move_large(c, out.data(), true);
  copy_bytes(c.out.data, out.data(), out.size());
}

// ---- Inline.

void ShmCollectives::move_inline(const Collective& c) {
  const int index = sync_.index();
  const std::size_t bytes = moves_.most_exposed();
  if (const std::size_t exposed = moves_.exposed(index); exposed > 0) {
    std::memcpy(sync_.inline_buffer(index, bytes, sync_.sync_point() + 1), c.in.data, exposed);
  }
  sync_.arrive(c, {moves_.shape(), bytes});
  if (moves_.reads(index)) sync_.wait_for_arrival(c, moves_.only_source());
  read_inline(c);
}

// This member's own data are read from its input, unless writing the output would overwrite them.
void ShmCollectives::read_inline(const Collective& c) {
  const std::size_t bytes = moves_.most_exposed(), result = moves_.result();
  const int own = needs_own_output(context_, c) ? ShmMoves::kNone : sync_.index();
  const auto data_of = [&](int member) -> const std::byte* {
    return member == own ? c.in.data : sync_.inline_buffer(member, bytes, sync_.sync_point());
  };
  if (reduces(c.kind)) {
    const std::size_t begin = moves_.read_from(0).in_begin;
    if (result == 0) return;
    return sums_.sum(c, {&c.out.data, 1}, result, [&](int member) { return data_of(member) + begin; });
  }
  for (int member = 0; member < sync_.size(); ++member) {
    const MoveRange& range = moves_.read_from(member);
    if (range.bytes == 0) continue;
    // memmove: the own range of an in-place gather is where it belongs already.
    std::memmove(c.out.data + range.out_begin, data_of(member) + range.in_begin, range.bytes);
  }
}

// ---- Large: in place if all exposed data are in arenas, else staged.

void ShmCollectives::move_large(const Collective& c, std::byte* out, bool is_own_out) {
  const int index = sync_.index();
  sync_.arrive(c, {moves_.shape(), moves_.most_exposed(), offset_of(c.in.data, moves_.exposed(index)),
                   is_own_out ? ShmSync::kNoOffset : offset_of(out, moves_.result())});
  sync_.wait_for_arrival(c);
  bool is_in_place = true;
  buffers_.clear();
  for (int member = 0; member < sync_.size(); ++member) {
    const std::size_t exposed = moves_.exposed(member);
    buffers_.push_back(exposed > 0 ? sync_.input_of(member, exposed) : nullptr);
    is_in_place = is_in_place && (exposed == 0 || buffers_.back() != nullptr);
  }
  is_in_place ? move_in_place(c, out) : move_staged(c, out);
}

void ShmCollectives::copy_own(const Collective& c, std::byte* out) const {
  const MoveRange& range = moves_.read_from(sync_.index());
  const std::byte* from = c.in.data + range.in_begin;
  std::byte* const to = out + range.out_begin;
  if (!reduces(c.kind) && range.bytes > 0 && to != from) copy_bytes(to, from, range.bytes);
}

// ---- In place.

// The output of `reader`, to which the other members write too; null if only the reader itself writes. Members share
// the copies if the collective has a root and the output is in an arena.
std::byte* ShmCollectives::shared_out(int reader, std::size_t bytes) const {
  return moves_.root() == ShmMoves::kNone ? nullptr : sync_.output_of(reader, bytes);
}

void ShmCollectives::move_in_place(const Collective& c, std::byte* out) {
  ++steps_;
  if (reduces(c.kind)) {
    sum_from_buffers(c, out);
  } else {
    copy_from_buffers(out);
    copy_own(c, out);
  }
  sync_.publish(SyncProgress::kConsumed, steps_);
  wait_until_untouched(c);
}

// In a reduce whose root has its output in an arena, every member sums a shard.
void ShmCollectives::sum_from_buffers(const Collective& c, std::byte* out) {
  const int reader = moves_.only_reader();
  std::byte* const shared = reader == ShmMoves::kNone ? nullptr : shared_out(reader, moves_.most_exposed());
  const Shard own = shared ? ShardLayout::part_of(moves_.most_exposed(), sync_.size(), sync_.index())
                           : Shard{moves_.read_from(0).in_begin, moves_.result()};
  std::byte* const to = shared ? shared + own.begin : out;
  if (own.size == 0) return;
  sums_.sum(c, {&to, 1}, own.size, [&](int member) { return buffers_[static_cast<std::size_t>(member)] + own.begin; });
}

// Begins with the next member, so that not all members read the same one at a time.
void ShmCollectives::copy_from_buffers(std::byte* out) const {
  const int size = sync_.size(), index = sync_.index();
  for (int k = 1; k < size; ++k) {
    const int member = (index + k) % size;
    if (const MoveRange& range = moves_.read_from(member); range.bytes > 0) copy_share(member, index, range, out);
    const MoveRange& range = moves_.read_by(member);
    std::byte* const theirs = range.bytes > 0 ? shared_out(member, range.out_begin + range.bytes) : nullptr;
    if (theirs != nullptr) copy_share(index, member, range, theirs);
  }
}

// Copies this member's share of a range. With N members the root has a range with each of the N - 1 others, so it
// copies an N-th of each, and the other member the rest.
void ShmCollectives::copy_share(int source, int reader, const MoveRange& range, std::byte* out) const {
  const std::size_t cut = range.bytes - range.bytes / buffers_.size() / kCutUnit * kCutUnit;
  const bool is_shared = shared_out(reader, range.out_begin + range.bytes) != nullptr;
  const bool is_root = sync_.index() == moves_.root();
  const std::size_t begin = is_shared && is_root ? cut : 0;
  const std::size_t end = is_shared && !is_root ? cut : range.bytes;
  const std::byte* const from = buffers_[static_cast<std::size_t>(source)] + range.in_begin;
  copy_bytes(out + range.out_begin + begin, from + begin, end - begin);
}

// Blocks until no member reads or writes this member's buffers any more.
void ShmCollectives::wait_until_untouched(const Collective& c) {
  const int root = moves_.root();
  const bool is_root = sync_.index() == root, root_exposes = moves_.only_source() == root;
  const bool is_shared = shared_out(root_exposes ? sync_.index() : root, 0) != nullptr;
  const bool all_touch = is_root ? root_exposes || is_shared : is_shared && reduces(c.kind);
  if (root == ShmMoves::kNone || all_touch) return sync_.wait_for_progress(c, SyncProgress::kConsumed, steps_);
  if (!is_root && (!root_exposes || is_shared)) sync_.wait_for_progress(c, SyncProgress::kConsumed, steps_, root);
}

// ---- Staged.

// The k-th slices of all ranges that a member exposes are in its slice buffer of step first + k: one slice if all
// readers read the same range, else one per reader, one behind the other.
struct ShmCollectives::StagedSlices {
  std::byte* out;
  std::size_t bytes;
  std::uint64_t count;
  std::uint64_t first;

  Shard of(const MoveRange& range, std::uint64_t k) const {
    const std::size_t begin = std::min(range.bytes, k * bytes);
    return {begin, std::min(bytes, range.bytes - begin)};
  }
  // Where a reader's slice begins in the slice buffer.
  std::size_t begin_of(int source, int reader) const {
    return static_cast<std::size_t>(reader < source ? reader : reader - 1) * bytes;
  }
};

ShmCollectives::StagedSlices ShmCollectives::staged_slices(std::byte* out) const {
  const std::size_t readers = moves_.is_same_for_all() ? 1 : buffers_.size() - 1;
  const std::size_t most = kSliceBufferBytes / readers / kCutUnit * kCutUnit;
  const std::size_t bytes =
      std::min(most, rounded_up(std::max<std::size_t>(1, moves_.longest() / kMostShortSlices), kSliceUnit));
  return {out, bytes, rounded_up(moves_.longest(), bytes) / bytes, steps_ + 1};
}

void ShmCollectives::move_staged(const Collective& c, std::byte* out) {
  const int index = sync_.index();
  const bool exposes = moves_.exposed(index) > 0;
  const bool stages = exposes && buffers_[static_cast<std::size_t>(index)] == nullptr;
  const StagedSlices slices = staged_slices(out);
  steps_ += slices.count;
  if (stages && slices.count > 0) stage_slice(c, slices, 0);
  copy_own(c, out);
  for (std::uint64_t k = 0; k < slices.count; ++k) {
    if (stages && k + 1 < slices.count) stage_slice(c, slices, k + 1);
    if (moves_.reads(index)) read_slice(c, slices, k);
  }
  if (exposes && !stages) sync_.wait_for_progress(c, SyncProgress::kConsumed, steps_, moves_.only_reader());
}

void ShmCollectives::stage_slice(const Collective& c, const StagedSlices& slices, std::uint64_t k) {
  const std::uint64_t step = slices.first + k;
  if (k >= ShmSync::kSliceBuffers) {
    sync_.wait_for_progress(c, SyncProgress::kConsumed, step - ShmSync::kSliceBuffers, moves_.only_reader());
  }
  const int index = sync_.index();
  std::byte* const buffer = sync_.slice_buffer(index, step);
  if (moves_.is_same_for_all()) {
    const Shard slice = slices.of({0, 0, moves_.exposed(index)}, k);
    sync_.copy_to_slice_buffer(buffer, c.in.data + slice.begin, slice.size, ShmSync::kAllMembers);
  } else {
    for (int member = 0; member < sync_.size(); ++member) {
      if (member == index) continue;
      const MoveRange& range = moves_.read_by(member);
      const Shard slice = slices.of(range, k);
      const std::byte* const from = c.in.data + range.in_begin + slice.begin;
      sync_.copy_to_slice_buffer(buffer + slices.begin_of(index, member), from, slice.size, member);
    }
  }
  sync_.publish(SyncProgress::kStaged, step);
}

// The address of the k-th slice of the range that this member reads from `member`. Blocks until `member` has staged it.
const std::byte* ShmCollectives::slice_from(const Collective& c, const StagedSlices& slices, int member,
                                            std::uint64_t k) {
  const int index = sync_.index();
  const std::size_t begin = moves_.read_from(member).in_begin + k * slices.bytes;
  if (member == index) return c.in.data + begin;
  if (std::byte* const buffer = buffers_[static_cast<std::size_t>(member)]) return buffer + begin;
  const std::uint64_t step = slices.first + k;
  sync_.wait_for_progress(c, SyncProgress::kStaged, step, member);
  return sync_.slice_buffer(member, step) + (moves_.is_same_for_all() ? 0 : slices.begin_of(member, index));
}

void ShmCollectives::read_slice(const Collective& c, const StagedSlices& slices, std::uint64_t k) {
  const int size = sync_.size(), index = sync_.index();
  if (reduces(c.kind)) {
    const Shard slice = slices.of({0, 0, moves_.result()}, k);
    std::byte* const out = slices.out + slice.begin;
    const auto input_of = [&](int member) { return slice_from(c, slices, member, k); };
    if (slice.size > 0) sums_.sum(c, {&out, 1}, slice.size, input_of);
  } else {
    for (int i = 1; i < size; ++i) {
      const int member = (index + i) % size;
      const MoveRange& range = moves_.read_from(member);
      const Shard slice = slices.of(range, k);
      if (slice.size == 0) continue;
      copy_bytes(slices.out + range.out_begin + slice.begin, slice_from(c, slices, member, k), slice.size);
    }
  }
  sync_.publish(SyncProgress::kConsumed, slices.first + k);
}

}  // namespace horo
