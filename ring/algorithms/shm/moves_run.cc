// Every kind but all_reduce is one movement: members show bytes, and take parts of what others show (ShmMoves). Who
// shows must not change it before it was taken; so it lies beside a mark or in a stage, which are many, and its member
// may leave, or it lies in the member's own buffer, and the member stays until it hears that it was taken.
//
// A stage is free at the beginning of a large collective, in which all have met: who comes has left all before. Within
// the collective it is free again when all its takers say that they are a lap further.

#include <algorithm>
#include <cstring>

#include "ring/algorithms/shm/collectives.h"
#include "ring/schedule/schedule_parts.h"

namespace horo {
namespace {

constexpr std::size_t kSliceUnit = 4096;
constexpr std::size_t kMostSlices = 8;  // of what is short: so that who takes begins soon
constexpr std::size_t kCutUnit = 64;

std::size_t rounded_up(std::size_t bytes, std::size_t unit) {
  return (bytes + unit - 1) / unit * unit;
}

}  // namespace

void ShmCollectives::move(const Collective& c) {
  moves_.plan(c, sync_.size(), sync_.index());
  if (reduces(c.kind)) sums_.plan(c.contributors);
  if (moves_.most_shown() <= ShmSync::kFlatBytes) return move_flat(c);
  if (!needs_own_output(party_, c)) return move_large(c, c.out.data, false);
  const auto memory = party_.scratch.take(moves_.result());
  const auto out = memory.part(0, moves_.result());
  move_large(c, out.data(), true);
  copy_bytes(c.out.data, out.data(), out.size());
}

// ---- Flat.

void ShmCollectives::move_flat(const Collective& c) {
  const int index = sync_.index();
  const std::size_t bytes = moves_.most_shown();
  if (const std::size_t shown = moves_.shown(index); shown > 0) {
    std::memcpy(sync_.flat_of(index, bytes, sync_.number() + 1), c.in.data, shown);
  }
  sync_.come(c, {moves_.shape(), bytes});
  if (moves_.takes(index)) sync_.await_come(c, moves_.giver());
  take_flat(c);
}

void ShmCollectives::take_flat(const Collective& c) {
  const std::size_t bytes = moves_.most_shown(), result = moves_.result();
  const int own = needs_own_output(party_, c) ? ShmMoves::kNobody : sync_.index();  // what it has is not overwritten
  const auto flat_of = [&](int member) -> const std::byte* {
    return member == own ? c.in.data : sync_.flat_of(member, bytes, sync_.number());
  };
  if (reduces(c.kind)) {
    const std::size_t begin = moves_.from(0).from;
    if (result == 0) return;
    return sums_.sum(c, {&c.out.data, 1}, result, [&](int member) { return flat_of(member) + begin; });
  }
  for (int member = 0; member < sync_.size(); ++member) {
    const Part& part = moves_.from(member);
    // One's own part may be where it belongs.
    if (part.bytes > 0) std::memmove(c.out.data + part.to, flat_of(member) + part.from, part.bytes);
  }
}

// ---- Large.

void ShmCollectives::move_large(const Collective& c, std::byte* out, bool is_own_out) {
  const int index = sync_.index();
  sync_.come(c, {moves_.shape(), moves_.most_shown(), place_of(c.in.data, moves_.shown(index)),
                 is_own_out ? ShmSync::kNowhere : place_of(out, moves_.result())});
  sync_.await_come(c);
  bool is_in_place = true;
  places_.clear();
  for (int member = 0; member < sync_.size(); ++member) {
    const std::size_t shown = moves_.shown(member);
    places_.push_back(shown > 0 ? sync_.in_of(member, shown) : nullptr);
    is_in_place = is_in_place && (shown == 0 || places_.back() != nullptr);
  }
  is_in_place ? move_in_place(c, out) : move_staged(c, out);
}

void ShmCollectives::take_own(const Collective& c, std::byte* out) const {
  const Part& part = moves_.from(sync_.index());
  const std::byte* from = c.in.data + part.from;
  if (!reduces(c.kind) && part.bytes > 0 && out + part.to != from) copy_bytes(out + part.to, from, part.bytes);
}

// Where one gives to all or takes from all, the others have time to help it, if they see the output. Null: nobody does.
std::byte* ShmCollectives::shared_out(int taker, std::size_t bytes) const {
  return moves_.root() == ShmMoves::kNobody ? nullptr : sync_.out_of(taker, bytes);
}

void ShmCollectives::move_in_place(const Collective& c, std::byte* out) {
  ++steps_;
  if (reduces(c.kind)) {
    sum_from_places(c, out);
  } else {
    copy_from_places(out);
    take_own(c, out);
  }
  sync_.reached(Work::kTaken, steps_);
  await_touchers(c);
}

// Of a reduce everybody sums a shard, where all see the root's output.
void ShmCollectives::sum_from_places(const Collective& c, std::byte* out) {
  const int taker = moves_.taker();
  std::byte* const shared = taker == ShmMoves::kNobody ? nullptr : shared_out(taker, moves_.most_shown());
  const Shard mine = shared ? shard_of_bytes(moves_.most_shown(), sync_.size(), sync_.index())
                            : Shard{moves_.from(0).from, moves_.result()};
  std::byte* const to = shared ? shared + mine.begin : out;
  if (mine.size == 0) return;
  sums_.sum(c, {&to, 1}, mine.size, [&](int member) { return places_[static_cast<std::size_t>(member)] + mine.begin; });
}

// Begins with the neighbour, so that not all crowd onto one.
void ShmCollectives::copy_from_places(std::byte* out) const {
  const int size = sync_.size(), index = sync_.index();
  for (int k = 1; k < size; ++k) {
    const int member = (index + k) % size;
    if (const Part& part = moves_.from(member); part.bytes > 0) copy_share(member, index, part, out);
    const Part& part = moves_.to(member);
    std::byte* const theirs = part.bytes > 0 ? shared_out(member, part.to + part.bytes) : nullptr;
    if (theirs != nullptr) copy_share(index, member, part, theirs);
  }
}

// Of N members the root has N-1 others, so it copies an N-th of what moves between it and each of them.
void ShmCollectives::copy_share(int giver, int taker, const Part& part, std::byte* out) const {
  const std::size_t cut = part.bytes - part.bytes / places_.size() / kCutUnit * kCutUnit;
  const bool is_shared = shared_out(taker, part.to + part.bytes) != nullptr;
  const bool is_root = sync_.index() == moves_.root();
  const std::size_t begin = is_shared && is_root ? cut : 0;
  const std::size_t end = is_shared && !is_root ? cut : part.bytes;
  copy_bytes(out + part.to + begin, places_[static_cast<std::size_t>(giver)] + part.from + begin, end - begin);
}

// Until nobody reads or writes this member's memory any more.
void ShmCollectives::await_touchers(const Collective& c) {
  const int root = moves_.root();
  const bool is_root = sync_.index() == root, gives = moves_.giver() == root;
  const bool is_shared = shared_out(gives ? sync_.index() : root, 0) != nullptr;
  const bool all_touch = is_root ? gives || is_shared : is_shared && reduces(c.kind);
  if (root == ShmMoves::kNobody || all_touch) return sync_.await_reached(c, Work::kTaken, steps_);
  if (!is_root && (!gives || is_shared)) sync_.await_reached(c, Work::kTaken, steps_, root);
}

// ---- Staged.

// The k-th slice of each part is in the stage of step first + k; where takers take different parts, one behind the
// other.
struct ShmCollectives::Slices {
  std::byte* out;
  std::size_t bytes;
  std::uint64_t count;
  std::uint64_t first;

  Shard of(const Part& part, std::uint64_t k) const {
    const std::size_t begin = std::min(part.bytes, k * bytes);
    return {begin, std::min(bytes, part.bytes - begin)};
  }
  std::size_t slot(int giver, int taker) const {
    return static_cast<std::size_t>(taker < giver ? taker : taker - 1) * bytes;
  }
};

ShmCollectives::Slices ShmCollectives::slices(std::byte* out) const {
  const std::size_t takers = moves_.is_same_for_all() ? 1 : places_.size() - 1;
  const std::size_t most = kStageBytes / takers / kCutUnit * kCutUnit;
  const std::size_t bytes =
      std::min(most, rounded_up(std::max<std::size_t>(1, moves_.longest() / kMostSlices), kSliceUnit));
  return {out, bytes, rounded_up(moves_.longest(), bytes) / bytes, steps_ + 1};
}

void ShmCollectives::move_staged(const Collective& c, std::byte* out) {
  const auto index = static_cast<std::size_t>(sync_.index());
  const bool shows = moves_.shown(sync_.index()) > 0, lays = shows && places_[index] == nullptr;
  const bool takes = moves_.takes(sync_.index());
  const Slices slices = this->slices(out);
  steps_ += slices.count;
  if (lays && slices.count > 0) lay(c, slices, 0);
  take_own(c, out);
  for (std::uint64_t k = 0; k < slices.count; ++k) {
    if (lays && k + 1 < slices.count) lay(c, slices, k + 1);
    if (takes) take(c, slices, k);
  }
  if (shows && !lays) sync_.await_reached(c, Work::kTaken, steps_, moves_.taker());
}

void ShmCollectives::lay(const Collective& c, const Slices& slices, std::uint64_t k) {
  const std::uint64_t step = slices.first + k;
  if (k >= ShmSync::kStages) {
    sync_.await_reached(c, Work::kTaken, step - ShmSync::kStages, moves_.taker());
  }
  const int index = sync_.index();
  std::byte* const stage = sync_.stage_of(index, step);
  if (moves_.is_same_for_all()) {
    const Shard slice = slices.of({0, 0, moves_.shown(index)}, k);
    sync_.pass_on(stage, c.in.data + slice.begin, slice.size, ShmSync::kEveryone);
  } else {
    for (int member = 0; member < sync_.size(); ++member) {
      if (member == index) continue;
      const Part& part = moves_.to(member);
      const Shard slice = slices.of(part, k);
      const std::byte* const from = c.in.data + part.from + slice.begin;
      sync_.pass_on(stage + slices.slot(index, member), from, slice.size, member);
    }
  }
  sync_.reached(Work::kStaged, step);
}

// Where the k-th slice of what this member takes of that one lies.
const std::byte* ShmCollectives::slice_from(const Collective& c, const Slices& slices, int member, std::uint64_t k) {
  const int index = sync_.index();
  const Part& part = moves_.from(member);
  const std::size_t begin = part.from + k * slices.bytes;
  if (member == index) return c.in.data + begin;
  if (std::byte* const place = places_[static_cast<std::size_t>(member)]) return place + begin;
  const std::uint64_t step = slices.first + k;
  sync_.await_reached(c, Work::kStaged, step, member);
  return sync_.stage_of(member, step) + (moves_.is_same_for_all() ? 0 : slices.slot(member, index));
}

void ShmCollectives::take(const Collective& c, const Slices& slices, std::uint64_t k) {
  const int size = sync_.size(), index = sync_.index();
  if (reduces(c.kind)) {
    const Shard slice = slices.of({0, 0, moves_.result()}, k);
    std::byte* const out = slices.out + slice.begin;
    const auto input_of = [&](int member) { return slice_from(c, slices, member, k); };
    if (slice.size > 0) sums_.sum(c, {&out, 1}, slice.size, input_of);
  } else {
    for (int i = 1; i < size; ++i) {
      const int member = (index + i) % size;
      const Shard slice = slices.of(moves_.from(member), k);
      if (slice.size == 0) continue;
      copy_bytes(slices.out + moves_.from(member).to + slice.begin, slice_from(c, slices, member, k), slice.size);
    }
  }
  sync_.reached(Work::kTaken, slices.first + k);
}

}  // namespace horo
