// A mark is one cache line with all that a small all_reduce needs, so a meeting costs each member one line of each
// other; what a member wrote itself it knows, and does not fetch back from who has just read it.
//
// Nobody waits for his own stores to reach the others: that takes longer than a small all_reduce where cores are far
// from each other. So who tells something and who falls asleep in the same moment may miss each other; whoever falls
// asleep therefore sleeps for a moment first, says so all the while, and looks again before he sleeps for longer.
//
// And nobody looks for a mark before his own is made, nor twice at once, though a core would: a look that comes too
// early takes the line from who is about to write it, who then has to fetch it back.
#include "ring/algorithms/shm/sync.h"

#include <linux/futex.h>
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <new>
#include <utility>

#include "horo/base/error.h"
#include "horo/base/say.h"
#include "ring/reduce/reduce.h"
#include "ring/shm/cache_distance.h"

namespace horo {
namespace {

constexpr std::size_t kLine = 64;
constexpr std::size_t kBoardPage = 4096;
constexpr std::uint64_t kFlats = 80;
constexpr std::size_t kWorks = 3;
constexpr int kKindBits = 8, kKindShift = 64 - kKindBits;  // in a shape
// Of a sleep: the first one, in which every store of before has long arrived; and where messages are to be moved.
constexpr std::chrono::nanoseconds kShortSlice = std::chrono::microseconds(200);
// How far they have to go is looked at for each tensor of so much, and for every so many-th of those that take less.
constexpr std::size_t kMuch = 1 << 20;
constexpr std::uint64_t kLooksApart = 16;
constexpr int kEagerLooks = 8;  // without a pause in between, which takes as long as a line on its way

void wait_on(std::atomic<std::uint32_t>& word, std::uint32_t seen, std::chrono::nanoseconds longest) {
  const timespec slice{0, longest.count()};
  ::syscall(SYS_futex, &word, FUTEX_WAIT, seen, &slice, nullptr, 0);
}

void wake(std::atomic<std::uint32_t>& word) {
  ::syscall(SYS_futex, &word, FUTEX_WAKE, INT32_MAX, nullptr, nullptr, 0);
}

}  // namespace

// "I have come for the n-th time, for this": written by its member, read by all others. `times` is stored last.
struct ShmSync::Mark {
  alignas(kLine) std::atomic<std::uint64_t> times;
  Plan plan;
  union {
    std::byte few[kFewBytes];
    struct {
      std::uint64_t in, out;
    } place;
  };
};

// Every word has one writer, but for `rung` and `claimed`. Zeros at first.
struct ShmSync::Board {
  std::array<Mark, kMarks> marks;
  struct Reached {
    alignas(kLine) std::atomic<std::uint64_t> step;
  };
  std::array<Reached, kWorks> reached;
  // "I sleep": stored with seq_cst before it looks for the last time, and all through the slices of a sleep.
  alignas(kLine) std::atomic<std::uint32_t> sleeps;
  std::atomic<std::uint32_t> rung;
  std::atomic<int> core;  // on which its member last waited: a hint, orders nothing
  // Parts of its member's share that are handed out in this meeting, to anybody.
  alignas(kLine) std::atomic<std::uint64_t> claimed;
  LineProbe lines;
  // The last meeting in which its member gave up; read where it was waited for in vain.
  alignas(kLine) std::atomic<std::uint64_t> given_up;
  alignas(kLine) std::byte flats[kFlats][kFlatBytes];
  alignas(kBoardPage) std::byte stages[kStages][kStageBytes];
};

// While it lives, its member says that it sleeps.
class ShmSync::Sleep {
 public:
  explicit Sleep(Board& mine) : mine_(mine) { mine_.sleeps.store(1, std::memory_order_seq_cst); }
  ~Sleep() { mine_.sleeps.store(0, std::memory_order_relaxed); }
  Sleep(const Sleep&) = delete;
  Sleep& operator=(const Sleep&) = delete;

  // Until somebody tells something, at most so long; not at all if it is there already.
  template <class IsThere>
  void slice(std::chrono::nanoseconds longest, IsThere is_there) const {
    const std::uint32_t seen = mine_.rung.load(std::memory_order_seq_cst);
    if (!is_there()) wait_on(mine_.rung, seen, longest);
  }

 private:
  Board& mine_;
};

Allocation ShmSync::make_board(ShmArenas& arenas) {
  static_assert(sizeof(Mark) == kLine);
  Allocation memory = arenas.allocate_lasting(sizeof(Board));
  if (memory.data) new (memory.data.get()) Board{};
  return memory;
}

ShmSync::ShmSync(const Party& party, std::shared_ptr<ShmArenas> arenas, Allocation mine,
                 const std::vector<std::int64_t>& boards, WaitPatience patience)
    : transport_(party.transport),
      arenas_(std::move(arenas)),
      members_(party.members),
      index_(party.index),
      mine_(std::move(mine)),
      patience_(patience),
      far_(members_.size(), 0) {
  for (std::size_t i = 0; i < members_.size(); ++i) {
    std::byte* at = arenas_->at(members_[i], static_cast<std::uint64_t>(boards[i]), sizeof(Board));
    if (reinterpret_cast<std::uintptr_t>(at) % alignof(Board) != 0) {
      throw ProtocolError(say("rank ", members_[i], " names ", boards[i], " as the place of its board"));
    }
    boards_.push_back(reinterpret_cast<Board*>(at));
    if (static_cast<int>(i) != index_) others_.push_back(boards_.back());
  }
}

std::byte* ShmSync::flat_of(int member, std::size_t bytes, std::uint64_t meeting) const {
  Board& its = board(member);
  return bytes <= kFewBytes ? its.marks[meeting % kMarks].few : its.flats[meeting % kFlats];
}

std::byte* ShmSync::stage_of(int member, std::uint64_t step) const {
  return board(member).stages[step % kStages];
}

// ---- Telling.

// Who is a whole lap ahead waits until half of it is free, so that it looks for the others seldom.
void ShmSync::await_marks(const Collective& c) {
  static_assert(kMarks < kFlats);
  const std::uint64_t meeting = number_ - kMarks / 2;
  await_whom(c, kEveryone, [meeting, this](int member) { return has_come(member, meeting); });
  seen_ = meeting;
}

void ShmSync::come(const Collective& c, const Arrival& arrival) {
  ++number_;
  Mark& mark = board(index_).marks[number_ % kMarks];
  for (Plan* const plan : {&plan_, &mark.plan}) {  // not from one to the other: see CMakeLists.txt
    plan->plan = c.plan, plan->key_hash = c.key_hash;
    plan->shape = arrival.shape, plan->bytes = arrival.bytes;
  }
  in_ = arrival.in, out_ = arrival.out;
  if (arrival.bytes > kFewBytes) mark.place.in = arrival.in, mark.place.out = arrival.out;
  looks_at_lines_ = arrival.bytes > kFlatBytes && is_look_due(arrival.bytes) && arrival.in == kNowhere;
  if (looks_at_lines_) board(index_).lines.write(number_);
  if (std::exchange(has_claimed_, false)) board(index_).claimed.store(0, std::memory_order_relaxed);
  mark.times.store(number_, std::memory_order_release);
  fetch_next_mark();
  tell();
}

// Lines that are written next are with those who read them a lap ago. They are back in time if something is written to
// them now: what stands in the mark, which somebody may not have read yet; anything in a flat, which all have left.
void ShmSync::fetch_next_mark() {
  const std::uint64_t next = number_ + 1;
  board(index_).marks[next % kMarks].times.store(next > kMarks ? next - kMarks : 0, std::memory_order_relaxed);
}

void ShmSync::fetch_next_flat(std::size_t bytes) {
  static_assert(kMarks + 1 < kFlats);
  std::byte* const flat = board(index_).flats[(number_ + 1) % kFlats];
  for (std::size_t at = 0; bytes > kFewBytes && at < bytes; at += kLine) flat[at] = std::byte{};
}

// Marks order what is summed before and after; this orders nothing.
std::uint64_t ShmSync::claim(int member, std::uint64_t parts) {
  has_claimed_ = true;
  std::atomic<std::uint64_t>& claimed = board(member).claimed;
  if (claimed.load(std::memory_order_relaxed) >= parts) return parts;  // what many find is written by few
  return claimed.fetch_add(1, std::memory_order_relaxed);
}

void ShmSync::set_past_caches(const std::string& setting) {
  is_distance_given_ = setting != "auto";
  far_.assign(members_.size(), setting == "on" ? 1 : 0);
  far_count_ = setting == "on" ? size() : 0;
}

void ShmSync::pass_on(std::byte* stage, const std::byte* from, std::size_t bytes, int whom) const {
  is_far(whom) ? copy_past_caches(stage, from, bytes) : copy_bytes(stage, from, bytes);
}

bool ShmSync::is_look_due(std::size_t bytes) {
  const bool is_due = bytes >= kMuch || short_++ % kLooksApart == 0;
  looks_ += is_due ? 1 : 0;
  return is_due;
}

// In turn, so that no two look at the same one's.
void ShmSync::look_at_lines() {
  if (size() < 2 || is_distance_given_) return;
  const auto ahead = static_cast<int>(looks_ % (members_.size() - 1)) + 1;
  const int member = (index_ + ahead) % size();
  const Duration taken = board(member).lines.read(number_);
  if (taken == Duration{}) return;
  char& far = far_[static_cast<std::size_t>(member)];
  const bool is_far_now = taken > LineProbe::kFar;
  far_count_ += (is_far_now ? 1 : 0) - far;
  far = is_far_now ? 1 : 0;
}

void ShmSync::reached(Work work, std::uint64_t step) {
  board(index_).reached[static_cast<std::size_t>(work)].step.store(step, std::memory_order_release);
  tell();
}

void ShmSync::give_up() {
  board(index_).given_up.store(number_, std::memory_order_release);
  tell();
}

// Whoever is seen to sleep is woken. Who is about to and is not seen looks again within kShortSlice.
void ShmSync::tell() {
  for (Board* const other : others_) {
    if (other->sleeps.load(std::memory_order_relaxed) == 0) continue;
    other->rung.fetch_add(1, std::memory_order_seq_cst);
    wake(other->rung);
  }
}

// ---- Waiting.

const ShmSync::Mark& ShmSync::mark_of(int member) const {
  return board(member).marks[number_ % kMarks];
}

const ShmSync::Plan& ShmSync::plan_of(int member) const {
  return member == index_ ? plan_ : mark_of(member).plan;
}

// A member may have come to later meetings already, whose marks are others.
bool ShmSync::has_come(int member, std::uint64_t meeting) const {
  return board(member).marks[meeting % kMarks].times.load(std::memory_order_acquire) >= meeting;
}

bool ShmSync::has_reached(int member, Work work, std::uint64_t step) const {
  return board(member).reached[static_cast<std::size_t>(work)].step.load(std::memory_order_acquire) >= step;
}

// Who comes to the next meeting has seen everybody leave this one.
bool ShmSync::has_given_up(int member) const {
  return board(member).given_up.load(std::memory_order_acquire) == number_;
}

void ShmSync::await_come(const Collective& c, int whom) {
  await_whom(c, whom, [this](int member) { return has_come(member, number_); });
  if (whom != kEveryone) return check_alike(c, whom, index_);
  seen_ = number_;
  check_all_alike(c);
  if (looks_at_lines_) look_at_lines();
}

void ShmSync::await_reached(const Collective& c, Work work, std::uint64_t step, int whom) {
  await_whom(c, whom, [&, work, step](int member) {
    if (has_reached(member, work, step)) return true;
    if (!has_given_up(member)) return false;
    throw Mismatch(say("channel ", c.channel, ", plan ", c.plan, ": rank ", rank_of(member),
                       " heard that ranks of another host run other tensors under this plan"));
  });
}

void ShmSync::await_end(const Collective& c, Work work, std::uint64_t step) {
  await_whom(c, kEveryone, [=, this](int member) { return has_given_up(member) || has_reached(member, work, step); });
}

// Who is not waited for is never missed.
template <class IsThere>
void ShmSync::await_whom(const Collective& c, int whom, IsThere is_there) {
  if (whom == kEveryone) {
    for (int member = 0; member < size(); ++member) await(c, member, is_there);
  } else {
    await(c, whom, [&](int member) { return member != whom || is_there(member); });
  }
}

template <class IsThere>
void ShmSync::await(const Collective& c, int member, IsThere is_there) {
  if (member == index_) return;
  const int eager = std::min(kEagerLooks, patience_.spins);
  for (int looks = 0; looks < eager; ++looks) {
    finish_loads();
    if (is_there(member)) return;
  }
  await_longer(c, member, is_there);
}

template <class IsThere>
[[gnu::noinline]] void ShmSync::await_longer(const Collective& c, int member, IsThere is_there) {
  const auto is_here = [&] {
    if (moves_messages_) transport_.has_left(rank_of(member));
    return is_there(member) || spins(member, is_there);
  };
  if (is_here()) return;
  for (const TimePoint awake_until = Clock::now() + patience_.awake; Clock::now() < awake_until;) {
    yield_core();
    if (is_here()) return;
  }
  const Sleep sleep(board(index_));
  for (auto slice = kShortSlice; !is_there(member); slice = moves_messages_ ? kShortSlice : kWaitSlice) {
    sleep.slice(slice, [&] { return is_there(member); });
    if (moves_messages_) transport_.has_left(rank_of(member));
    if (!is_there(member)) throw_if_late(c, member, is_there);
  }
}

// Not while somebody who is missed may be waiting for this very core: he gets it at once, and nobody else does.
template <class IsThere>
bool ShmSync::spins(int member, IsThere is_there) {
  const int core = ::sched_getcpu();
  std::atomic<int>& mine = board(index_).core;
  if (mine.load(std::memory_order_relaxed) != core) mine.store(core, std::memory_order_relaxed);
  for (int looks = 0; looks < patience_.spins; ++looks) {
    if (is_there(member)) return true;
    if (shares_core(core, is_there)) return false;
    relax_core();
  }
  return false;
}

template <class IsThere>
bool ShmSync::shares_core(int core, IsThere is_there) const {
  for (int member = 0; member < size(); ++member) {
    const bool is_here = member != index_ && board(member).core.load(std::memory_order_relaxed) == core;
    if (is_here && !is_there(member)) return true;
  }
  return false;
}

template <class IsThere>
void ShmSync::throw_if_late(const Collective& c, int member, IsThere is_there) const {
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

// ---- What all brought.

// They nearly always are.
void ShmSync::check_all_alike(const Collective& c) const {
  bool is_alike = true;
  for (const Board* const other : others_) is_alike &= other->marks[number_ % kMarks].plan == plan_;
  for (int member = 1; !is_alike && member < size(); ++member) check_alike(c, 0, member);
}

// All members see the same plans, so all that look find the same.
void ShmSync::check_alike(const Collective& c, int one, int other) const {
  const Plan& a = plan_of(one);
  const Plan& b = plan_of(other);
  if (a == b) return;
  const auto words = [](const Plan& of) {
    const auto kind = collective_kind_from(static_cast<int>(of.shape >> kKindShift));
    return say("key hash ", std::hex, of.key_hash, std::dec, ", ", of.bytes, " bytes, ",
               kind ? name_of(*kind) : "no collective", " ", std::hex, of.shape << kKindBits >> kKindBits);
  };
  throw Mismatch(say("channel ", c.channel, ", plan ", a.plan, ": rank ", rank_of(other),
                     " runs other tensors under this plan (plan ", b.plan, ", ", words(b), ") than rank ", rank_of(one),
                     " (", words(a), ")"));
}

std::byte* ShmSync::at(int member, std::uint64_t place, std::size_t bytes) const {
  return place == kNowhere ? nullptr : arenas_->at(rank_of(member), place, bytes);
}

std::byte* ShmSync::in_of(int member, std::size_t bytes) const {
  return at(member, member == index_ ? in_ : mark_of(member).place.in, bytes);
}

std::byte* ShmSync::out_of(int member, std::size_t bytes) const {
  return at(member, member == index_ ? out_ : mark_of(member).place.out, bytes);
}

}  // namespace horo
