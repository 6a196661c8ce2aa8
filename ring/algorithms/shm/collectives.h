// ShmCollectives: collectives among ranks that see each other's memory. Nothing travels: what members show lies in
// their arenas, and who wants it sums or takes it from there.
//
//   flat       a few KiB: each member writes what it shows beside its mark, and takes what it wants from beside theirs;
//              who wants nothing leaves at once
//   in place   what lies in arenas: it is taken from there. In an all_reduce each member sums its shard of all buffers
//              and writes it to all of them, and of large ones then what others have not come to yet; where one gives
//              to all or takes from all, everybody copies a part
//   staged     the callers' own memory, a chunk at a time: each member lays what it shows into its stages, ahead of
//              those who take it from there
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

namespace horo {

// The thread that starts the group's collectives alone.
class ShmCollectives {
 public:
  // Members meet on their boards: see ShmSync.
  ShmCollectives(const Party& party, std::shared_ptr<ShmArenas> arenas, Allocation mine,
                 const std::vector<std::int64_t>& boards, WaitPatience patience);

  void set_past_caches(const std::string& setting) { sync_.set_past_caches(setting); }

  // All but messages, and operations of the caller's own: those may fail in the middle, and take tensors whole.
  static bool takes(const Collective& c) { return c.kind != CollectiveKind::kSendRecv && c.op != ReduceOp::kCustom; }
  // All_reduces that are not flat.
  static bool takes_pieces(const Collective& collective);
  static constexpr int kMostMembers = 1024;

  // Throws what Transport::wait() throws: a Mismatch on all members alike that wait for each other, after which the
  // next one works.
  void run(const Collective& collective);

 private:
  std::uint64_t place_of(const std::byte* data, std::size_t bytes) const;

  void all_reduce_flat(const Collective& c, std::size_t bytes);
  void all_reduce(const Collective& c, std::size_t bytes);
  void lay_flat(const Collective& c, std::size_t bytes);
  void prepare_flat(const Collective& c, std::size_t bytes);
  void sum_in_place(const Collective& c, std::size_t bytes);
  void sum_unclaimed(const Collective& c, Shard shard, int member);
  void sum_places(const Collective& c, Shard part);
  void sum_staged(const Collective& c, std::size_t bytes);
  struct Chunks;
  void stage(const Collective& c, Shard chunk, std::uint64_t step);
  void sum_stages(const Collective& c, Shard chunk, std::uint64_t step);
  void unstage(const Collective& c, Shard chunk, std::uint64_t step);

  // The other kinds. `out` is where the result is written.
  using Part = ShmMoves::Part;
  void move(const Collective& c);
  void move_flat(const Collective& c);
  void take_flat(const Collective& c);
  void move_large(const Collective& c, std::byte* out, bool is_own_out);
  void take_own(const Collective& c, std::byte* out) const;

  std::byte* shared_out(int taker, std::size_t bytes) const;
  void move_in_place(const Collective& c, std::byte* out);
  void sum_from_places(const Collective& c, std::byte* out);
  void copy_from_places(std::byte* out) const;
  void copy_share(int giver, int taker, const Part& part, std::byte* out) const;
  void await_touchers(const Collective& c);

  struct Slices;
  Slices slices(std::byte* out) const;
  void move_staged(const Collective& c, std::byte* out);
  void lay(const Collective& c, const Slices& slices, std::uint64_t k);
  void take(const Collective& c, const Slices& slices, std::uint64_t k);
  const std::byte* slice_from(const Collective& c, const Slices& slices, int member, std::uint64_t k);

  static constexpr std::size_t kStageBytes = ShmSync::kStageBytes;
  using Work = ShmSync::Work;
  static Shard shard_of_bytes(std::size_t bytes, int members, int member);

  const Party party_;
  ShmSync sync_;
  std::uint64_t steps_ = 0;  // that all collectives had
  ShmSums sums_;
  ShmMoves moves_;
  Pieces pieces_;
  std::vector<std::byte*> places_;  // of a collective in place, by member: what it shows; null: nothing, or not here
  std::vector<std::byte*> parts_;   // of these, what is summed at the moment
};

}  // namespace horo
