// The waits of ShmSync: eager polls, then polls with pauses, then polls with the core offered to other threads, then
// sleep.
//
// No member waits until its own stores have reached the other cores; between distant cores that takes longer than a
// small all_reduce. So if one member announces while another one falls asleep, neither may see the other's store. A
// member therefore marks itself asleep, sleeps for kShortSleep only, and polls again before it sleeps for longer. By
// then every earlier store is visible, and every later announcement finds the mark and wakes the member.
#include <linux/futex.h>
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>

#include "horo/base/error.h"
#include "horo/base/patience.h"
#include "horo/base/say.h"
#include "ring/algorithms/shm/control_block.h"
#include "ring/algorithms/shm/sync.h"

namespace horo {
namespace {

constexpr int kEagerPolls = 8;
// The first slice of a sleep, and each slice where messages are to be moved meanwhile.
constexpr std::chrono::nanoseconds kShortSleep = std::chrono::microseconds(200);

void sleep_on(std::atomic<std::uint32_t>& wakeups, std::uint32_t seen, std::chrono::nanoseconds longest) {
  const timespec timeout{0, longest.count()};
  ::syscall(SYS_futex, &wakeups, FUTEX_WAIT, seen, &timeout, nullptr, 0);
}

// Marks the owner of a control block asleep for the life of the object.
class AsleepMark {
 public:
  explicit AsleepMark(ShmControlBlock& own) : own_(own) { own_.is_asleep.store(1, std::memory_order_seq_cst); }
  ~AsleepMark() { own_.is_asleep.store(0, std::memory_order_relaxed); }
  AsleepMark(const AsleepMark&) = delete;
  AsleepMark& operator=(const AsleepMark&) = delete;

 private:
  ShmControlBlock& own_;
};

}  // namespace

// The condition of a wait. The collective is used for its deadline and for error texts.
struct ShmSync::Condition {
  enum class Kind { kArrival, kProgress, kEnd };
  const Collective& c;
  Kind kind;
  std::uint64_t number;  // sync point or step
  SyncProgress progress = SyncProgress::kStaged;
  int only = kAllMembers;  // the one member that has to meet it
};

void ShmSync::wait_for_arrival(const Collective& c, int member) {
  wait_for(member, {c, Condition::Kind::kArrival, sync_point_});
  if (member != kAllMembers) return check_signature(c, member, index_);
  all_arrived_ = sync_point_;
  check_all_signatures(c);
  if (probes_) probe_cache_lines();
}

// Waits for half of the flags, so that a member that runs ahead seldom waits here.
void ShmSync::wait_for_free_flags(const Collective& c) {
  const std::uint64_t sync_point = sync_point_ - kFlags / 2;
  wait_for(kAllMembers, {c, Condition::Kind::kArrival, sync_point});
  all_arrived_ = sync_point;
}

void ShmSync::wait_for_progress(const Collective& c, SyncProgress progress, std::uint64_t step, int member) {
  wait_for(member, {c, Condition::Kind::kProgress, step, progress});
}

void ShmSync::wait_for_end(const Collective& c, SyncProgress progress, std::uint64_t step) {
  wait_for(kAllMembers, {c, Condition::Kind::kEnd, step, progress});
}

// ---- Conditions.

// A member may have arrived at later sync points already; their flags are others.
inline bool ShmSync::has_arrived(int member, std::uint64_t sync_point) const {
  return load_flag(block(member).flags[sync_point % kFlags]) >= sync_point;
}

inline bool ShmSync::has_published(int member, SyncProgress progress, std::uint64_t step) const {
  return block(member).progress[static_cast<std::size_t>(progress)].step.load(std::memory_order_acquire) >= step;
}

// A member that arrives at the next sync point has seen all others leave this one, so `given_up` is not overwritten
// while it is read here.
bool ShmSync::has_given_up(int member) const {
  return block(member).given_up.load(std::memory_order_acquire) == sync_point_;
}

inline bool ShmSync::is_met(int member, const Condition& condition) const {
  if (condition.only != kAllMembers && condition.only != member) return true;
  if (condition.kind == Condition::Kind::kArrival) return has_arrived(member, condition.number);
  if (has_published(member, condition.progress, condition.number)) return true;
  if (!has_given_up(member)) return false;
  if (condition.kind == Condition::Kind::kEnd) return true;
  throw Mismatch(say("channel ", condition.c.channel, ", plan ", condition.c.plan, ": rank ", rank_of(member),
                     " received a mismatch: ranks of another host run other tensors under this plan"));
}

// ---- Waiting.

void ShmSync::wait_for(int member, const Condition& condition) {
  if (member != kAllMembers) {
    Condition one = condition;
    one.only = member;
    return wait_for_one(member, one);
  }
  for (int each = 0; each < size(); ++each) wait_for_one(each, condition);
}

inline void ShmSync::wait_for_one(int member, const Condition& condition) {
  if (member == index_) return;
  const int polls = std::min(kEagerPolls, patience_.spins);
  if (poll_eagerly(polls, [&] { return is_met(member, condition); })) return;
  wait_longer(member, condition);
}

[[gnu::noinline]] void ShmSync::wait_longer(int member, const Condition& condition) {
  if (poll(member, condition)) return;
  for (const TimePoint awake_until = Clock::now() + patience_.awake; Clock::now() < awake_until;) {
    yield_core();
    if (poll(member, condition)) return;
  }
  sleep(member, condition);
}

bool ShmSync::poll(int member, const Condition& condition) {
  if (moves_messages_) transport_.has_left(rank_of(member));
  return is_met(member, condition) || spin(member, condition);
}

// Stops at once if an awaited member seems to wait for this core; the yield that follows gives the core to it.
bool ShmSync::spin(int member, const Condition& condition) {
  const int core = ::sched_getcpu();
  std::atomic<int>& own = block(index_).core;
  if (own.load(std::memory_order_relaxed) != core) own.store(core, std::memory_order_relaxed);
  for (int polls = 0; polls < patience_.spins; ++polls) {
    if (is_met(member, condition)) return true;
    if (shares_core(core, condition)) return false;
    relax_core();
  }
  return false;
}

bool ShmSync::shares_core(int core, const Condition& condition) const {
  for (int member = 0; member < size(); ++member) {
    const bool is_here = member != index_ && block(member).core.load(std::memory_order_relaxed) == core;
    if (is_here && !is_met(member, condition)) return true;
  }
  return false;
}

void ShmSync::sleep(int member, const Condition& condition) {
  ShmControlBlock& own = block(index_);
  const AsleepMark asleep(own);
  for (auto longest = kShortSleep; !is_met(member, condition); longest = moves_messages_ ? kShortSleep : kWaitSlice) {
    const std::uint32_t seen = own.wakeups.load(std::memory_order_seq_cst);
    if (!is_met(member, condition)) sleep_on(own.wakeups, seen, longest);
    if (moves_messages_) transport_.has_left(rank_of(member));
    if (!is_met(member, condition)) throw_if_late(member, condition);
  }
}

void ShmSync::throw_if_late(int member, const Condition& condition) const {
  const Collective& c = condition.c;
  const bool has_left = transport_.has_left(rank_of(member));
  if (is_met(member, condition)) return;  // it met the condition before it left
  if (has_left) {
    throw PeerLost(rank_of(member), say("rank ", transport_.rank(), ": rank ", rank_of(member),
                                        " left while it was waited for in shared memory"));
  }
  if (!has_passed(c.deadline)) return;
  std::vector<int> late;
  for (int other = 0; other < size(); ++other) {
    if (other != index_ && !is_met(other, condition)) late.push_back(rank_of(other));
  }
  if (late.empty()) return;
  throw PeerLost(late.front(),
                 say("rank ", transport_.rank(), ": still waiting in shared memory for ", say_ranks(late),
                     " on channel ", c.channel, ", plan ", c.plan, " at the deadline (HORO_DEADLINE_MS)"),
                 Evidence::kLate);
}

}  // namespace horo
