// The n-th time that all members meet is the same on all of them. A member that meets them for the n-th time has seen
// all others do so for the (n-1)-th, so what it wrote for the (n-2)-th has been read by everybody: marks come in pairs.
// A stage is read after the meeting, too, until its member comes to the next but one: so there are three of those.
#include "ring/shm_room.h"

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstring>
#include <new>

#include "horo/base/check.h"
#include "horo/base/error.h"
#include "horo/base/shard.h"
#include "ring/reduce.h"
#include "ring/say.h"

namespace horo {
namespace {

constexpr std::size_t kLine = 64;
constexpr std::size_t kShardUnit = 4096;     // bytes: shards begin on pages of their own
constexpr std::size_t kSumBytes = 16 << 10;  // summed and copied on before they leave the first-level cache
constexpr std::uint64_t kPrivate = ~std::uint64_t{0};
constexpr std::uint64_t kMarks = 2, kStages = 3;

void wait_on(std::atomic<std::uint32_t>& word, std::uint32_t seen) {
  const timespec slice{0, std::chrono::nanoseconds(kWaitSlice).count()};
  ::syscall(SYS_futex, &word, FUTEX_WAIT, seen, &slice, nullptr, 0);
}

void wake(std::atomic<std::uint32_t>& word) {
  ::syscall(SYS_futex, &word, FUTEX_WAKE, INT32_MAX, nullptr, nullptr, 0);
}

// The part of `bytes` that a member sums, in bytes.
Shard shard_of_bytes(std::size_t bytes, int members, int member) {
  const Shard units = shard_of((bytes + kShardUnit - 1) / kShardUnit, members, member);
  const std::size_t begin = std::min(bytes, units.begin * kShardUnit);
  return {begin, std::min(bytes, (units.begin + units.size) * kShardUnit) - begin};
}

}  // namespace

// "I am here for the n-th time": written by its member, read by all others. `times` is stored last.
struct ShmRoom::Arrival {
  alignas(kLine) std::atomic<std::uint64_t> times;
  std::uint64_t plan;
  std::uint64_t key_hash;
  std::uint64_t bytes;
  std::uint64_t place;  // in the arena, or kPrivate
};

// Every word has one writer, but for `rung`. Zeros at first.
struct ShmRoom::Board {
  std::array<Arrival, kMarks> arrivals;
  alignas(kLine) std::atomic<std::uint64_t> done;  // the last meeting whose sums of this member are in place
  // "I sleep": set with seq_cst before a last look at what is waited for, so that one of the two sees.
  alignas(kLine) std::atomic<std::uint32_t> sleeps;
  std::atomic<std::uint32_t> rung;
  alignas(kLine) std::byte flats[kMarks][kFlatBytes];
  alignas(kShardUnit) std::byte stages[kStages][kStageBytes];
};

Allocation ShmRoom::make_board(ShmArenas& arenas) {
  Allocation memory = arenas.allocate_lasting(sizeof(Board));
  if (memory.data) new (memory.data.get()) Board{};
  return memory;
}

ShmRoom::ShmRoom(const Party& party, std::shared_ptr<ShmArenas> arenas, Allocation mine,
                 const std::vector<std::int64_t>& boards, Patience patience)
    : transport_(party.transport),
      arenas_(std::move(arenas)),
      members_(party.members),
      index_(party.index),
      mine_(std::move(mine)),
      patience_(patience) {
  for (std::size_t i = 0; i < members_.size(); ++i) {
    std::byte* at = arenas_->at(members_[i], static_cast<std::uint64_t>(boards[i]), sizeof(Board));
    if (reinterpret_cast<std::uintptr_t>(at) % alignof(Board) != 0) {
      throw ProtocolError(say("rank ", members_[i], " names ", boards[i], " as the place of its board"));
    }
    boards_.push_back(reinterpret_cast<Board*>(at));
  }
}

// An operation of the caller's own may fail in the middle, and takes tensors whole.
bool ShmRoom::takes(const Collective& c) {
  return c.kind == CollectiveKind::kAllReduce && c.op != ReduceOp::kCustom;
}

void ShmRoom::all_reduce(const Collective& c) {
  plan_sum(c);
  const std::size_t bytes = c.counts[0] * size_of(c.dtype);
  if (bytes <= kFlatBytes) return flat(c, bytes);
  const auto place = c.in.data == c.out.data ? arenas_->offset_of(c.out.data, bytes) : std::nullopt;
  arrive(c, bytes, place.value_or(kPrivate));
  await_arrivals(c);
  check_alike(c);
  bool all_shared = true;
  for (int member = 0; member < size(); ++member) all_shared = all_shared && mark_of(member).place != kPrivate;
  all_shared ? in_place(c, bytes) : staged(c, bytes);
}

// The tree of the last collective is mostly that of the next one.
void ShmRoom::plan_sum(const Collective& c) {
  if (c.contributors == contributors_) return;
  contributors_ = c.contributors;
  std::vector<std::int64_t> ids;
  givers_.clear();
  for (int member = 0; member < size(); ++member) {
    const std::int64_t id = c.contributors[static_cast<std::size_t>(member)];
    if (id == kAbsent) continue;
    ids.push_back(id);
    givers_.push_back(member);
  }
  tree_ = ids.empty() ? std::vector<TreeStep>() : canonical_tree(ids);
  inputs_.assign(ids.size(), {});
}

// input_of(member): where its bytes begin. then(at, length) follows each piece of the sum.
template <class InputOf, class Then>
void ShmRoom::sum(const Collective& c, std::byte* out, std::size_t bytes, InputOf input_of, Then then) {
  if (givers_.empty()) return;
  const Reduction reduction{c.dtype, c.op, {c.prescale, c.postscale, c.divisor}, false, nullptr};
  for (std::size_t at = 0; at < bytes; at += kSumBytes) {
    const std::size_t length = std::min(kSumBytes, bytes - at);
    for (std::size_t i = 0; i < givers_.size(); ++i) inputs_[i].data = input_of(givers_[i]) + at;
    reduce_tree(reduction, tree_, inputs_, out + at, length / size_of(c.dtype));
    then(at, length);
  }
}

void ShmRoom::flat(const Collective& c, std::size_t bytes) {
  const auto flat_of = [this](int member) { return board(member).flats[arrivals_ % kMarks]; };
  if (bytes > 0 && gives(index_)) std::memcpy(board(index_).flats[(arrivals_ + 1) % kMarks], c.in.data, bytes);
  arrive(c, bytes, kPrivate);
  await_arrivals(c);
  check_alike(c);
  sum(c, c.out.data, bytes, flat_of, [](std::size_t, std::size_t) {});
}

void ShmRoom::in_place(const Collective& c, std::size_t bytes) {
  const Shard mine = shard_of_bytes(bytes, size(), index_);
  places_.clear();
  for (int member = 0; member < size(); ++member) {
    places_.push_back(arenas_->at(rank_of(member), mark_of(member).place, bytes) + mine.begin);
  }
  std::byte* const out = places_[static_cast<std::size_t>(index_)];
  const auto place_of = [this](int member) { return places_[static_cast<std::size_t>(member)]; };
  sum(c, out, mine.size, place_of, [&](std::size_t at, std::size_t length) {
    for (std::byte* place : places_) {
      if (place != out) std::memcpy(place + at, out + at, length);
    }
  });
  done(arrivals_);
  await_done(c, arrivals_);
}

// While the others sum a chunk, the next one is staged.
void ShmRoom::staged(const Collective& c, std::size_t bytes) {
  const auto part = [&](std::size_t begin) { return Shard{begin, std::min(kStageBytes, bytes - begin)}; };
  stage(c, part(0));
  arrive(c, bytes, kPrivate);
  for (std::size_t begin = 0; begin < bytes; begin += kStageBytes) {
    const std::uint64_t meeting = arrivals_;
    await_arrivals(c);
    if (begin + kStageBytes < bytes) {
      stage(c, part(begin + kStageBytes));
      arrive(c, bytes, kPrivate);
    }
    sum_stages(c, part(begin), meeting);
    done(meeting);
    await_done(c, meeting);
    unstage(c, part(begin), meeting);
  }
}

std::byte* ShmRoom::stage_of(int member, std::uint64_t meeting) const {
  return board(member).stages[meeting % kStages];
}

// The others' shards of what this member gives; for the next meeting.
void ShmRoom::stage(const Collective& c, Shard chunk) {
  if (!gives(index_)) return;
  std::byte* const to = stage_of(index_, arrivals_ + 1);
  for (int member = 0; member < size(); ++member) {
    const Shard shard = shard_of_bytes(chunk.size, size(), member);
    if (member != index_) std::memcpy(to + shard.begin, c.in.data + chunk.begin + shard.begin, shard.size);
  }
}

void ShmRoom::sum_stages(const Collective& c, Shard chunk, std::uint64_t meeting) {
  const Shard mine = shard_of_bytes(chunk.size, size(), index_);
  std::byte* const out = c.out.data + chunk.begin + mine.begin;
  std::byte* const told = stage_of(index_, meeting) + mine.begin;
  const auto input_of = [&](int member) {
    return member == index_ ? c.in.data + chunk.begin + mine.begin : stage_of(member, meeting) + mine.begin;
  };
  sum(c, out, mine.size, input_of,
      [&](std::size_t at, std::size_t length) { std::memcpy(told + at, out + at, length); });
}

void ShmRoom::unstage(const Collective& c, Shard chunk, std::uint64_t meeting) {
  if (givers_.empty()) return;
  for (int member = 0; member < size(); ++member) {
    const Shard shard = shard_of_bytes(chunk.size, size(), member);
    if (member == index_) continue;
    std::memcpy(c.out.data + chunk.begin + shard.begin, stage_of(member, meeting) + shard.begin, shard.size);
  }
}

bool ShmRoom::gives(int member) const {
  return contributors_[static_cast<std::size_t>(member)] != kAbsent;
}

// ---- Meetings.

const ShmRoom::Arrival& ShmRoom::mark_of(int member) const {
  return board(member).arrivals[arrivals_ % kMarks];
}

void ShmRoom::arrive(const Collective& c, std::size_t bytes, std::uint64_t place) {
  ++arrivals_;
  Arrival& mark = board(index_).arrivals[arrivals_ % kMarks];
  mark.plan = c.plan;
  mark.key_hash = c.key_hash;
  mark.bytes = bytes;
  mark.place = place;
  mark.times.store(arrivals_, std::memory_order_seq_cst);
  wake_sleepers();
}

void ShmRoom::done(std::uint64_t meeting) {
  board(index_).done.store(meeting, std::memory_order_seq_cst);
  wake_sleepers();
}

void ShmRoom::wake_sleepers() {
  for (int member = 0; member < size(); ++member) {
    Board& other = board(member);
    if (member == index_ || other.sleeps.load(std::memory_order_seq_cst) == 0) continue;
    other.rung.fetch_add(1, std::memory_order_seq_cst);
    wake(other.rung);
  }
}

// A member may have come to the next meeting already, whose mark is the other one.
void ShmRoom::await_arrivals(const Collective& c) {
  await(c, [this, meeting = arrivals_](int member) {
    return board(member).arrivals[meeting % kMarks].times.load(std::memory_order_seq_cst) >= meeting;
  });
}

void ShmRoom::await_done(const Collective& c, std::uint64_t meeting) {
  await(c, [this, meeting](int member) { return board(member).done.load(std::memory_order_seq_cst) >= meeting; });
}

template <class IsThere>
void ShmRoom::await(const Collective& c, IsThere is_there) {
  for (int member = 0; member < size(); ++member) {
    if (member == index_) continue;
    int looks = 0;
    while (looks < patience_.spins && !is_there(member)) ++looks, relax_core();
    if (is_there(member)) continue;
    const TimePoint awake_until = Clock::now() + patience_.awake;
    while (!is_there(member)) {
      if (Clock::now() < awake_until) {
        yield_core();
        continue;
      }
      doze([&] { return is_there(member); });
      if (!is_there(member)) give_up_if_late(c, member, is_there);
    }
  }
}

template <class Ready>
void ShmRoom::doze(Ready ready) {
  Board& mine = board(index_);
  mine.sleeps.store(1, std::memory_order_seq_cst);
  const std::uint32_t seen = mine.rung.load(std::memory_order_seq_cst);
  if (!ready()) wait_on(mine.rung, seen);
  mine.sleeps.store(0, std::memory_order_seq_cst);
}

template <class IsThere>
void ShmRoom::give_up_if_late(const Collective& c, int member, IsThere is_there) const {
  const bool has_left = transport_.has_left(rank_of(member));
  if (is_there(member)) return;  // it came, and then it left
  if (has_left) {
    throw PeerLost(rank_of(member), say("rank ", transport_.rank(), ": rank ", rank_of(member),
                                        " left while it was waited for in shared memory"));
  }
  if (Clock::now() < c.deadline) return;
  std::vector<int> late;
  for (int other = 0; other < size(); ++other) {
    if (other != index_ && !is_there(other)) late.push_back(rank_of(other));
  }
  if (late.empty()) return;
  throw PeerLost(late.front(),
                 say("rank ", transport_.rank(), ": still waiting in shared memory for ", say_ranks(late),
                     " on channel ", c.channel, ", plan ", c.plan, " at the deadline (HORO_DEADLINE_MS)"),
                 Evidence::kLate);
}

// All members see the same marks, so all of them find the same.
void ShmRoom::check_alike(const Collective& c) const {
  for (int member = 0; member < size(); ++member) {
    const Arrival& mark = mark_of(member);
    const Arrival& first = mark_of(0);
    if (mark.plan == first.plan && mark.key_hash == first.key_hash && mark.bytes == first.bytes) continue;
    throw Mismatch(say("channel ", c.channel, ", plan ", first.plan, ": rank ", rank_of(member),
                       " runs other tensors under this plan (plan ", mark.plan, ", key hash ", std::hex, mark.key_hash,
                       std::dec, ", ", mark.bytes, " bytes) than rank ", rank_of(0), " (key hash ", std::hex,
                       first.key_hash, std::dec, ", ", first.bytes, " bytes)"));
  }
}

}  // namespace horo
