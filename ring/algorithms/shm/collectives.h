// ShmCollectives: collectives among ranks that map each other's arenas. No messages: each member exposes its data in
// shared memory, and the others read or sum them there. There are three data paths:
//
//   inline     Up to a few KiB. Each member writes its data into its arrival flag or an inline buffer and reads the
//              others' from theirs. A pure contributor returns at once.
//   in place   Buffers in arenas. The data are read from the buffers themselves. In an all_reduce each member sums its
//              shard of all buffers and writes the sum to all of them; in a large one it then claims parts of other
//              members' shards. In a collective with a root, every member copies a share.
//   staged     Memory of the caller. Each member copies its data chunk by chunk into its slice buffers, one chunk ahead
//              of the members that read them.
//
// An all_reduce may leave the sums where they are made: each member keeps those of its shard (reduce_to_shards()).
//
// All sums are canonical: their order depends on the contributor ids alone.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "horo/base/shard.h"
#include "ring/algorithms/messages.h"
#include "ring/algorithms/pieces.h"
#include "ring/algorithms/shm/moves.h"
#include "ring/algorithms/shm/sums.h"
#include "ring/algorithms/shm/sync.h"
#include "ring/sharded_result.h"

namespace horo {

// Owned by the thread that starts the group's collectives.
class ShmCollectives {
 public:
  // The arguments are ShmSync's.
  ShmCollectives(const GroupContext& context, std::shared_ptr<ShmArenas> arenas, Allocation own,
                 const std::vector<std::int64_t>& offsets, WaitPatience patience);

  void set_past_caches(const std::string& setting) { sync_.set_past_caches(setting); }

  // All kinds but send_recv, and no custom operations: these may fail half-way, and take tensors as a whole.
  static bool takes(const Collective& c) { return c.kind != CollectiveKind::kSendRecv && c.op != ReduceOp::kCustom; }
  // Whether the collective may bring Collective::pieces: all_reduces that are too long for the inline path.
  static bool takes_pieces(const Collective& collective);
  static constexpr int kMostMembers = 1024;

  // Blocks. Throws what Transport::wait() throws. If the collectives of members differ, all members that wait for each
  // other throw Mismatch; the next collective works.
  void run(const Collective& collective);

  // ShardedGroup::reduce_to_shards().
  static ShardLayout layout_for(const Collective& collective, int members);
  static bool takes_shards(const Collective& collective);
  bool reduce_to_shards(const Collective& collective, Buffer own, ShardedResult& result);

 private:
  std::uint64_t offset_of(const std::byte* data, std::size_t bytes) const;

  // all_reduce.cc
  void all_reduce_inline(const Collective& c, std::size_t bytes);
  void all_reduce(const Collective& c, std::size_t bytes);
  void write_inline(const Collective& c, std::size_t bytes);
  void prepare_inline_sum(const Collective& c, std::size_t bytes);
  void sum_in_place(const Collective& c, std::size_t bytes);
  void sum_unclaimed(const Collective& c, Shard shard, int member);
  void sum_range(const Collective& c, Shard range);
  void sum_staged(const Collective& c, std::size_t bytes);
  void stage_chunk(const Collective& c, Shard chunk, std::uint64_t step);
  void sum_chunk(const Collective& c, Shard chunk, std::uint64_t step);
  void collect_chunk(const Collective& c, Shard chunk, std::uint64_t step);

  // reduce_to_shards.cc
  bool find_shards(const Collective& c, ShardedResult& result);
  void sum_to_shard(const Collective& c, const ShardLayout& layout, std::byte* own);
  void stage_to_shard(const Collective& c, const ShardLayout& layout, std::byte* own);

  // moves_run.cc: all other kinds. `out`: where this member's result is written.
  void move(const Collective& c);
  void move_inline(const Collective& c);
  void read_inline(const Collective& c);
  void move_large(const Collective& c, std::byte* out, bool is_own_out);
  void copy_own(const Collective& c, std::byte* out) const;
  std::byte* shared_out(int reader, std::size_t bytes) const;
  void move_in_place(const Collective& c, std::byte* out);
  void sum_from_buffers(const Collective& c, std::byte* out);
  void copy_from_buffers(std::byte* out) const;
  void copy_share(int source, int reader, const MoveRange& range, std::byte* out) const;
  void wait_until_untouched(const Collective& c);
  struct StagedSlices;
  StagedSlices staged_slices(std::byte* out) const;
  void move_staged(const Collective& c, std::byte* out);
  void stage_slice(const Collective& c, const StagedSlices& slices, std::uint64_t k);
  void read_slice(const Collective& c, const StagedSlices& slices, std::uint64_t k);
  const std::byte* slice_from(const Collective& c, const StagedSlices& slices, int member, std::uint64_t k);

  static constexpr std::size_t kSliceBufferBytes = ShmSync::kSliceBufferBytes;

  const GroupContext context_;
  ShmSync sync_;
  std::uint64_t steps_ = 0;  // of all collectives so far; equal on all members
  ShmSums sums_;
  ShmMoves moves_;
  Pieces pieces_;
  std::vector<std::byte*> buffers_;  // in place: by member, the buffer that it exposes; null: none, or not in an arena
  std::vector<std::byte*> results_;  // in place: by member, where the result goes
  std::vector<std::byte*> ranges_;   // the range of each result that is written at the moment
};

}  // namespace horo
