// Group: ranks that are able to run collectives together. The interface that every backend (over a Transport, shared
// memory, MPI, NCCL) implements.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "horo/base/config.h"
#include "ring/collective.h"
#include "ring/schedule/machine_cost.h"
#include "ring/transport.h"

namespace horo {

class ShmArenas;
struct Links;

// Collectives of one channel are started by one thread, in the same order on all members.
class Group {
 public:
  virtual ~Group() = default;
  virtual int rank() const = 0;  // index of this member
  virtual int size() const = 0;

  // Memory with which collectives are fastest. Any thread.
  virtual Allocation allocate(std::size_t bytes) = 0;

  // Runs the collective and returns when it has ended. Blocks; throws what ended it, and std::invalid_argument before
  // any byte is sent if the collective contradicts itself.
  virtual void run(const Collective& collective) = 0;

  // Whether an all_reduce like this one may bring Collective::pieces; a member may though others bring buffers. The
  // thread that starts collectives.
  virtual bool takes_pieces(const Collective& /*collective*/) const { return false; }

  // The algorithm that run() takes: a word for counters and logs. The same on all members.
  virtual std::string_view algorithm(const Collective& collective) const = 0;
};

struct Members {
  std::vector<int> ranks;                  // world ranks in ascending order, one's own among them
  std::uint32_t set = 0;                   // process set: for counters
  std::vector<int> hosts = {};             // by member: equal numbers share a host; empty: one host
  MachineCost costs = usual_costs();       // by which algorithms are chosen; the same on all members
  std::shared_ptr<ShmArenas> arenas = {};  // memory that members on this host share; null: none
};

// A group over a transport, which runs every collective from a schedule (ring/group/choose.h). Transport and counters
// outlive it. Throws std::invalid_argument.
std::unique_ptr<Group> make_host_group(Transport& transport, Members members, const Config& config, Counters& counters);
// The same over the transport of `links`, with their shared memory and MPI.
std::unique_ptr<Group> make_host_group(const Links& links, Members members, const Config& config, Counters& counters);

}  // namespace horo
