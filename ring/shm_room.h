// ShmRoom: all_reduces among ranks that see each other's memory. Nothing travels: each member sums its own part of what
// lies in the others' arenas and puts the result where all of them have it.
//
//   flat       a few KiB: each member writes its values beside its arrival mark, and everybody sums all
//   in place   buffers that lie in arenas: each member sums its shard from all buffers and writes it to all of them
//   staged     the callers' own memory, a chunk at a time: each member lays the others' shards into its stage, sums its
//              own, and takes the sums from the others' stages
//
// All are canonical: the order of summation depends on the contributor ids alone.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "horo/base/shard.h"
#include "ring/host_algorithms.h"
#include "ring/reduce.h"
#include "ring/shm_arena.h"
#include "ring/transport.h"
#include "ring/waiting.h"

namespace horo {

// The thread that starts the group's collectives alone.
class ShmRoom {
 public:
  // A member's board: what it tells the others, and its stages. In its arena; allocate() before the members meet.
  static Allocation make_board(ShmArenas& arenas);

  // `boards`: by member, where its board lies in its arena; `mine` is this member's. Throws ProtocolError for places
  // that cannot be.
  ShmRoom(const Party& party, std::shared_ptr<ShmArenas> arenas, Allocation mine,
          const std::vector<std::int64_t>& boards, Patience patience);

  static bool takes(const Collective& collective);

  // Throws what Transport::wait() throws: a Mismatch on all members alike, after which the next one works.
  void all_reduce(const Collective& collective);

  static constexpr std::size_t kFlatBytes = 4096;
  static constexpr std::size_t kStageBytes = 128 << 10;

 private:
  struct Arrival;
  struct Board;

  int size() const { return static_cast<int>(members_.size()); }
  int rank_of(int member) const { return members_[static_cast<std::size_t>(member)]; }
  Board& board(int member) const { return *boards_[static_cast<std::size_t>(member)]; }
  bool gives(int member) const;

  void flat(const Collective& c, std::size_t bytes);
  void in_place(const Collective& c, std::size_t bytes);
  void staged(const Collective& c, std::size_t bytes);
  void stage(const Collective& c, Shard chunk);
  void sum_stages(const Collective& c, Shard chunk, std::uint64_t meeting);
  void unstage(const Collective& c, Shard chunk, std::uint64_t meeting);
  std::byte* stage_of(int member, std::uint64_t meeting) const;

  void plan_sum(const Collective& c);
  template <class InputOf, class Then>
  void sum(const Collective& c, std::byte* out, std::size_t bytes, InputOf input_of, Then then);

  const Arrival& mark_of(int member) const;
  void arrive(const Collective& c, std::size_t bytes, std::uint64_t place);
  void done(std::uint64_t meeting);
  void wake_sleepers();
  void await_arrivals(const Collective& c);
  void await_done(const Collective& c, std::uint64_t meeting);
  template <class IsThere>
  void await(const Collective& c, IsThere is_there);
  template <class Ready>
  void doze(Ready ready);
  template <class IsThere>
  void give_up_if_late(const Collective& c, int member, IsThere is_there) const;
  void check_alike(const Collective& c) const;

  Transport& transport_;
  const std::shared_ptr<ShmArenas> arenas_;
  const std::vector<int> members_;  // world ranks
  const int index_;
  const Allocation mine_;
  std::vector<Board*> boards_;
  const Patience patience_;
  std::uint64_t arrivals_ = 0;  // at how many meetings this member was

  std::vector<std::int64_t> contributors_;  // of the last collective, and what follows from them
  std::vector<int> givers_;
  std::vector<TreeStep> tree_;
  std::vector<TreeInput> inputs_;
  std::vector<std::byte*> places_;  // of a collective in place
};

}  // namespace horo
