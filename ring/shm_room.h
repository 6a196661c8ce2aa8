// ShmRoom: all_reduces among ranks that see each other's memory. Nothing travels: each member sums its own part of what
// lies in the others' arenas and puts the result where all of them have it.
//
//   flat       a few KiB: each member writes its values beside its mark, and everybody sums all
//   in place   buffers that lie in arenas: each member sums its shard from all buffers and writes it to all of them
//   staged     the callers' own memory, a chunk at a time: each member lays the others' shards into its stage, sums its
//              own, and takes the sums from the others' stages
//
// All are canonical: the order of summation depends on the contributor ids alone.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "horo/base/shard.h"
#include "ring/host_algorithms.h"
#include "ring/reduce.h"
#include "ring/shm_meeting.h"

namespace horo {

// The thread that starts the group's collectives alone.
class ShmRoom {
 public:
  // Members meet on their boards: see ShmMeeting.
  ShmRoom(const Party& party, std::shared_ptr<ShmArenas> arenas, Allocation mine,
          const std::vector<std::int64_t>& boards, Patience patience);

  static bool takes(const Collective& collective);

  // Throws what Transport::wait() throws: a Mismatch on all members alike, after which the next one works.
  void all_reduce(const Collective& collective);

 private:
  bool gives(int member) const;

  void lay_flat(const Collective& c, std::size_t bytes);
  void flat(const Collective& c, std::size_t bytes);
  void sum_few(const Collective& c, std::size_t bytes);
  void in_place(const Collective& c, std::size_t bytes);
  void staged(const Collective& c, std::size_t bytes);
  void stage(const Collective& c, Shard chunk, std::uint64_t step);
  void sum_stages(const Collective& c, Shard chunk, std::uint64_t step);
  void unstage(const Collective& c, Shard chunk, std::uint64_t step);

  void plan_sum(const Collective& c);
  template <class InputOf>
  void sum(const Collective& c, std::span<std::byte* const> outs, std::size_t bytes, InputOf input_of);

  ShmMeeting meeting_;
  std::uint64_t steps_ = 0;  // that all collectives had

  std::vector<std::int64_t> contributors_;  // of the last collective, and what follows from them
  std::vector<int> givers_;
  TreeReducer reducer_;
  std::vector<TreeInput> inputs_;
  static constexpr std::size_t kRegister = 64;  // bytes
  struct alignas(kRegister) Register : std::array<std::byte, kRegister> {};
  std::vector<Register> few_;
  std::vector<std::byte*> places_;  // of a collective in place
};

}  // namespace horo
