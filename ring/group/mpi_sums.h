// An all_reduce that MPI computes (MPI_Iallreduce): for networks that add up themselves. For order="fast" alone: who is
// added to whom is MPI's choice. Taken where HORO_ALGORITHMS overrides for it, because horo's own sums over the same
// MPI take less time up to 1 MiB, and with two ranks always (bench/README.md).
#pragma once

#include <array>
#include <cstdint>
#include <memory>

#include "ring/algorithms/messages.h"
#include "ring/group/choose.h"
#include "ring/mpi/mpi_world.h"
#include "ring/os/waiting.h"

namespace horo {

// Of the world, and of its lane's channel alone: MPI wants the collectives of a communicator in one order on all ranks.
// A process set would need a communicator of its own, and none can be made with a deadline: only MPI_Comm_idup does not
// block, and it makes one of the same ranks.
class MpiSums {
 public:
  static constexpr std::uint32_t kChannel = 1;  // of horo/lane/lane_set.cc

  MpiSums(const Party& party, std::shared_ptr<MpiWorld> world);
  MpiSums(const MpiSums&) = delete;
  MpiSums& operator=(const MpiSums&) = delete;

  // Equal on all members. Not where MPI's result would be another than horo's: Open MPI's sums of 8- and 16-bit
  // integers saturate (on processors with AVX) instead of wrapping, and its minima and maxima of floats lose NaNs; nor
  // what it has no type for, nor where a member is absent.
  static bool takes(const Collective& c);

  // Of what it takes. Throws what Transport::wait() throws, of which a PeerLost comes with origin -1 where MPI does not
  // say who is late; std::runtime_error for an error of MPI, after which the caller has to end the transport. MPI never
  // has the address of the caller's memory.
  void run(const Collective& c);

 private:
  static constexpr std::size_t kSlots = 4;  // under way together
  struct Slot {
    MpiMemory memory;
    MpiRequest request = nullptr;
  };

  void await_all(const Collective& c);
  void sum(const Collective& c);
  void begin(const Collective& c, std::size_t chunk);
  void end(const Collective& c, std::size_t chunk);
  void await(const Collective& c, Slot& slot);
  bool is_done(Slot& slot);
  void look_around(const Collective& c);
  void heed_leaver(int rank);
  void check(int error) const;
  void give_up(const char* why) noexcept;

  const Party party_;
  const std::shared_ptr<MpiWorld> world_;
  Collective meeting_;  // of all members, before MPI begins
  std::array<Slot, kSlots> slots_;
  Lookout lookout_;
  int looked_at_ = 0;    // whether this member has left
  TimePoint left_at_{};  // when that was first seen; since the clock's epoch: not in this sum
};

// Null where there is no MPI, the group is not the world, or no wish.
std::unique_ptr<MpiSums> make_mpi_sums(const Party& party, const Members& members, const AlgorithmOverrides& overrides);

}  // namespace horo
