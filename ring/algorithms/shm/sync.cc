#include "ring/algorithms/shm/sync.h"

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <climits>
#include <new>
#include <utility>

#include "horo/base/error.h"
#include "horo/base/forked.h"
#include "horo/base/past_caches.h"
#include "horo/base/say.h"
#include "ring/algorithms/shm/control_block.h"
#include "ring/reduce/reduce.h"

namespace horo {

Allocation ShmSync::make_control_block(Arena& arena, std::size_t members) {
  const auto is_unused = [](const std::byte* begin) {
    const auto& block = *reinterpret_cast<const ShmControlBlock*>(begin);
    return block.left.load(std::memory_order_acquire) == block.others;
  };
  Allocation memory = arena.allocate_lasting(sizeof(ShmControlBlock), is_unused);
  if (!memory.data) return memory;
  auto& block = *new (memory.data.get()) ShmControlBlock{};
  block.stamp = static_cast<std::uint64_t>(Clock::now().time_since_epoch().count()) | 1;
  block.others = static_cast<std::uint32_t>(members - 1);
  return memory;
}

ShmSync::ShmSync(const GroupContext& context, std::shared_ptr<ShmArenas> arenas, Allocation own,
                 const std::vector<std::int64_t>& offsets, WaitPatience patience)
    : transport_(context.transport),
      arenas_(std::move(arenas)),
      members_(context.members),
      index_(context.index),
      own_(std::move(own)),
      patience_(patience),
      generation_(fork_generation()),
      caches_(context.size(), context.index) {
  for (std::size_t i = 0; i < members_.size(); ++i) {
    std::byte* at = arenas_->at(members_[i], static_cast<std::uint64_t>(offsets[i]), sizeof(ShmControlBlock));
    if (reinterpret_cast<std::uintptr_t>(at) % alignof(ShmControlBlock) != 0) {
      throw ProtocolError(say("rank ", members_[i], " announces offset ", offsets[i], " for its control block, which ",
                              "is not aligned"));
    }
    blocks_.push_back(reinterpret_cast<ShmControlBlock*>(at));
    if (static_cast<int>(i) == index_) continue;
    other_blocks_.push_back(blocks_.back());
    other_stamps_.push_back(blocks_.back()->stamp);
  }
}

// After an error other members may be in a collective as well as not, and what they have in common ends with the epoch.
ShmSync::~ShmSync() {
  if (fork_generation() != generation_) return;  // the memory is the parent's
  try {
    transport_.has_left(transport_.rank());
  } catch (const std::exception&) {  // it has ended
    return;
  }
  for (std::size_t i = 0; i < other_blocks_.size(); ++i) {
    if (other_blocks_[i]->stamp == other_stamps_[i]) other_blocks_[i]->left.fetch_add(1, std::memory_order_release);
  }
}

// ---- Announcing.

void ShmSync::arrive(const Collective& c, const Arrival& arrival) {
  ShmControlBlock& own = block(index_);
  ++sync_point_;
  signature_ = {c.plan, c.key_hash, arrival.shape, arrival.bytes};
  in_ = arrival.in, out_ = arrival.out;
  probes_ = arrival.bytes > kInlineBytes && caches_.is_probe_due(arrival.bytes) && arrival.in == kNoOffset;
  if (probes_) own.probe.write(sync_point_);
  if (std::exchange(has_claimed_, false)) own.claimed.store(0, std::memory_order_relaxed);

  ArrivalFlag& flag = own.flags[sync_point_ % kFlags];
  if (arrival.bytes > kFlagPayloadBytes) flag.offsets = {arrival.in, arrival.out};
  store_flag(flag, sync_point_, signature_);
  const std::uint64_t next = sync_point_ + 1;
  prefetch_flag(own.flags[next % kFlags], next > kFlags ? next - kFlags : 0);
  wake_sleepers();
}

void ShmSync::publish(SyncProgress progress, std::uint64_t step) {
  block(index_).progress[static_cast<std::size_t>(progress)].step.store(step, std::memory_order_release);
  wake_sleepers();
}

void ShmSync::give_up() {
  block(index_).given_up.store(sync_point_, std::memory_order_release);
  wake_sleepers();
}

// A member that is seen asleep is woken. One that is about to sleep and is not seen polls again after kShortSleep
// (sync_wait.cc).
void ShmSync::wake_sleepers() {
  for (ShmControlBlock* const other : other_blocks_) {
    if (other->is_asleep.load(std::memory_order_relaxed) == 0) continue;
    other->wakeups.fetch_add(1, std::memory_order_seq_cst);
    ::syscall(SYS_futex, &other->wakeups, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
  }
}

// Relaxed: the flags and the progress counters order the sums before and after. The load comes first so that members
// that find no part left do not write to a line that all members hold.
std::uint64_t ShmSync::claim(int member, std::uint64_t parts) {
  has_claimed_ = true;
  std::atomic<std::uint64_t>& claimed = block(member).claimed;
  if (claimed.load(std::memory_order_relaxed) >= parts) return parts;
  return claimed.fetch_add(1, std::memory_order_relaxed);
}

// ---- Buffers.

std::byte* ShmSync::inline_buffer(int member, std::size_t bytes, std::uint64_t sync_point) const {
  ShmControlBlock& its = block(member);
  if (bytes <= kFlagPayloadBytes) return its.flags[sync_point % kFlags].payload;
  return its.inline_buffers[sync_point % ShmControlBlock::kInlineBuffers];
}

void ShmSync::prefetch_inline_buffer(std::size_t bytes) {
  if (bytes > kFlagPayloadBytes) prefetch_lines(inline_buffer(index_, bytes, sync_point_ + 1), bytes);
}

std::byte* ShmSync::slice_buffer(int member, std::uint64_t step) const {
  return block(member).slice_buffers[step % kSliceBuffers];
}

void ShmSync::copy_to_slice_buffer(std::byte* to, const std::byte* from, std::size_t bytes, int reader) const {
  is_remote(reader) ? copy_past_caches(to, from, bytes) : copy_bytes(to, from, bytes);
}

void ShmSync::probe_cache_lines() {
  const int member = caches_.next_to_probe();
  caches_.record(member, block(member).probe.read(sync_point_));
}

std::byte* ShmSync::address_of(int member, std::uint64_t offset, std::size_t bytes) const {
  return offset == kNoOffset ? nullptr : arenas_->at(rank_of(member), offset, bytes);
}

std::byte* ShmSync::input_of(int member, std::size_t bytes) const {
  return address_of(member, member == index_ ? in_ : flag_of(member).offsets.in, bytes);
}

std::byte* ShmSync::output_of(int member, std::size_t bytes) const {
  return address_of(member, member == index_ ? out_ : flag_of(member).offsets.out, bytes);
}

// ---- Signatures.

const ArrivalFlag& ShmSync::flag_of(int member) const {
  return block(member).flags[sync_point_ % kFlags];
}

SyncSignature ShmSync::signature_of(int member) const {
  return member == index_ ? signature_ : load_signature(flag_of(member));
}

// Compares without a branch per member: they are nearly always equal.
void ShmSync::check_all_signatures(const Collective& c) const {
  bool are_equal = true;
  for (const ShmControlBlock* const other : other_blocks_) {
    are_equal &= load_signature(other->flags[sync_point_ % kFlags]) == signature_;
  }
  for (int member = 1; !are_equal && member < size(); ++member) check_signature(c, 0, member);
}

// All members compare the same signatures in the same order, so all of them throw the same Mismatch.
void ShmSync::check_signature(const Collective& c, int one, int other) const {
  const SyncSignature a = signature_of(one), b = signature_of(other);
  if (a == b) return;
  const auto words = [](const SyncSignature& of) {
    const auto kind = collective_kind_from(kind_in_shape(of.shape));
    return say("key hash ", std::hex, of.key_hash, std::dec, ", ", of.bytes, " bytes, ",
               kind ? name_of(*kind) : "no collective", " ", std::hex, of.shape << 8 >> 8);
  };
  throw Mismatch(say("channel ", c.channel, ", plan ", a.plan, ": rank ", rank_of(other),
                     " runs other tensors under this plan (plan ", b.plan, ", ", words(b), ") than rank ", rank_of(one),
                     " (", words(a), ")"));
}

}  // namespace horo
