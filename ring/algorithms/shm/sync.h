// ShmSync: synchronisation among members that map each other's arenas. Each member has a control block in its arena,
// which the other members read. It holds arrival flags, progress counters and buffers for the data of a collective.
//
// Sync points. Every collective begins with one; the n-th sync point is the same one on all members. Arriving at sync
// point n implies that the member has finished reading all data of earlier sync points. A pure contributor does not
// wait for other members. A member arrives at n only after it has seen every peer arrive at a sync point later than
// n - kFlags. So no member still reads the flag and the inline buffer that the arrival overwrites.
//
// Steps. After a sync point at which all members wait for all, they publish their progress in steps. Steps are numbers
// that grow from collective to collective and never repeat.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "ring/algorithms/messages.h"
#include "ring/algorithms/shm/arrival_flag.h"
#include "ring/os/waiting.h"
#include "ring/shm/arena.h"
#include "ring/shm/cache_distance.h"
#include "ring/transport.h"

namespace horo {

struct ShmControlBlock;

// The progress that a member publishes: its data are in its slice buffer (kStaged), its part is summed (kSummed), it
// has finished reading the other members' data (kConsumed).
enum class SyncProgress { kStaged, kSummed, kConsumed };

// Owned by the thread that starts the group's collectives.
class ShmSync {
 public:
  // Allocates the control block of a member in its arena, for so many members; null data where the arena is full. The
  // members exchange the offsets of their blocks before they construct a ShmSync. A block that was freed stays until
  // all members have destroyed their ShmSync, or for Arena::kGrace.
  static Allocation make_control_block(Arena& arena, std::size_t members);

  // `offsets`: by member, of its control block in its arena; `own` is this member's block. Throws ProtocolError for an
  // offset outside of the arena or not aligned.
  ShmSync(const GroupContext& context, std::shared_ptr<ShmArenas> arenas, Allocation own,
          const std::vector<std::int64_t>& offsets, WaitPatience patience);
  ~ShmSync();
  ShmSync(const ShmSync&) = delete;
  ShmSync& operator=(const ShmSync&) = delete;

  // Makes the waits of this object progress messages as well (Transport). For callers with messages in flight during a
  // collective.
  void move_messages() { moves_messages_ = true; }

  int size() const { return static_cast<int>(members_.size()); }
  int index() const { return index_; }
  int rank_of(int member) const { return members_[static_cast<std::size_t>(member)]; }
  const ShmArenas& arenas() const { return *arenas_; }

  // ---- Sync points.

  // The announcement of a member, besides plan and key hash: `shape` and `bytes` of the SyncSignature, and the offsets
  // of its buffers in its arena. Data of at most kFlagPayloadBytes are in the flag and need no offsets.
  static constexpr std::uint64_t kNoOffset = ~std::uint64_t{0};
  struct Arrival {
    std::uint64_t shape = 0;
    std::size_t bytes = 0;
    std::uint64_t in = kNoOffset;
    std::uint64_t out = kNoOffset;
  };

  // The last sync point at which this member arrived; 0 at first.
  std::uint64_t sync_point() const { return sync_point_; }
  // Returns when the flag and the inline buffer of the next sync point may be overwritten. Blocks only if this member
  // is kFlags ahead of another one.
  void acquire_next(const Collective& collective) {
    if (sync_point_ + 1 >= all_arrived_ + kFlags) wait_for_free_flags(collective);
  }
  // Arrives at the next sync point, which was acquired. Does not block.
  void arrive(const Collective& collective, const Arrival& arrival);

  static constexpr int kAllMembers = -1;
  // Blocks until `member`, or all members, have arrived at this member's last sync point. Throws what Transport::wait()
  // throws. If all members wait for all and their signatures differ, all throw Mismatch, and the next sync point works.
  void wait_for_arrival(const Collective& collective, int member = kAllMembers);
  // The buffers of a member that has arrived, at this process's addresses; null if it announced no offset.
  std::byte* input_of(int member, std::size_t bytes) const;
  std::byte* output_of(int member, std::size_t bytes) const;

  // Announces that this member makes no more progress in this collective: other members that wait for it throw
  // Mismatch.
  void give_up();

  // ---- Steps.

  // Takes the next `count` steps for a collective and returns the first one. To be called with equal counts on all
  // members.
  std::uint64_t take_steps(std::uint64_t count) { return std::exchange(steps_, steps_ + count) + 1; }
  std::uint64_t last_step() const { return steps_; }  // that was taken

  void publish(SyncProgress progress, std::uint64_t step);
  // Blocks until `member`, or all members, have published that step or a later one. Throws as wait_for_arrival().
  void wait_for_progress(const Collective& collective, SyncProgress progress, std::uint64_t step,
                         int member = kAllMembers);
  // Blocks until all other members have published that step or have given up.
  void wait_for_end(const Collective& collective, SyncProgress progress, std::uint64_t step);

  // Takes one of the `parts` parts of a member's share of the work, in ascending order, each once over all members;
  // `parts` or more: none is left. Valid between a sync point of all members and the publication of a later step.
  std::uint64_t claim(int member, std::uint64_t parts);

  // ---- Buffers of the control block.
  //
  // There are more of both kinds than a core's own caches hold. A buffer that another core has read takes three times
  // as long to write as long as it is in that core's cache.

  // Data of one sync point: at most kFlagPayloadBytes are in the flag itself, at most kInlineBytes in an inline buffer.
  static constexpr std::size_t kInlineBytes = 4096;
  std::byte* inline_buffer(int member, std::size_t bytes, std::uint64_t sync_point) const;
  // Fetches this member's next inline buffer into its cache. To be called while it waits for other members.
  void prefetch_inline_buffer(std::size_t bytes);

  // Data of one step. Consecutive steps have consecutive buffers, modulo kSliceBuffers.
  static constexpr std::size_t kSliceBufferBytes = 64 << 10;
  static constexpr std::uint64_t kSliceBuffers = 24;
  std::byte* slice_buffer(int member, std::uint64_t step) const;
  // memcpy() to a slice buffer of this member from which `reader`, or all members, will read: with stores that bypass
  // the caches if a reader is behind another cache.
  void copy_to_slice_buffer(std::byte* to, const std::byte* from, std::size_t bytes, int reader) const;
  bool is_remote(int reader) const { return reader == kAllMembers ? caches_.any_remote() : caches_.is_remote(reader); }
  // HORO_SHM_PAST_CACHES: "on" or "off" replace the measurement; "auto" leaves it.
  void set_past_caches(const std::string& setting) { caches_.set(setting); }

 private:
  struct Condition;
  static constexpr std::uint64_t kFlags = 64;
  friend struct ShmControlBlock;

  ShmControlBlock& block(int member) const { return *blocks_[static_cast<std::size_t>(member)]; }
  const ArrivalFlag& flag_of(int member) const;
  SyncSignature signature_of(int member) const;
  bool has_arrived(int member, std::uint64_t sync_point) const;
  bool has_published(int member, SyncProgress progress, std::uint64_t step) const;
  bool has_given_up(int member) const;
  std::byte* address_of(int member, std::uint64_t offset, std::size_t bytes) const;

  void wait_for_free_flags(const Collective& c);
  void probe_cache_lines();
  void wake_sleepers();

  void wait_for(int member, const Condition& condition);
  void wait_for_one(int member, const Condition& condition);
  void wait_longer(int member, const Condition& condition);
  bool poll(int member, const Condition& condition);
  bool spin(int member, const Condition& condition);
  void sleep(int member, const Condition& condition);
  bool shares_core(int core, const Condition& condition) const;
  bool is_met(int member, const Condition& condition) const;
  void throw_if_late(int member, const Condition& condition) const;

  void check_signature(const Collective& c, int one, int other) const;
  void check_all_signatures(const Collective& c) const;

  Transport& transport_;
  const std::shared_ptr<ShmArenas> arenas_;
  const std::vector<int> members_;  // world ranks
  const int index_;
  const Allocation own_;
  std::vector<ShmControlBlock*> blocks_, other_blocks_;
  std::vector<std::uint64_t> other_stamps_;
  const WaitPatience patience_;
  const std::uint32_t generation_;  // fork_generation() at the construction
  bool moves_messages_ = false;
  CacheDistances caches_;

  std::uint64_t sync_point_ = 0;
  std::uint64_t all_arrived_ = 0;  // a sync point at which all members have arrived
  std::uint64_t steps_ = 0;        // taken so far; equal on all members
  // The signature that this member announced at sync_point_: a copy, because the peers hold the cache line of its flag.
  SyncSignature signature_;
  std::uint64_t in_ = kNoOffset, out_ = kNoOffset;
  bool probes_ = false;       // this member wrote its probe lines and reads a peer's
  bool has_claimed_ = false;  // since the last sync point
};

}  // namespace horo
