// Group: ranks that run collectives together. The interface of every backend.
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
#include "ring/sharded_group.h"
#include "ring/transport.h"

namespace horo {

class ShmArenas;
struct Links;

// The collectives of one channel are run by one thread, in the same order on all members.
class Group {
 public:
  virtual ~Group() = default;
  virtual int rank() const = 0;  // index of this member
  virtual int size() const = 0;

  // Memory in which collectives are fastest. Any thread.
  virtual Allocation allocate(std::size_t bytes) = 0;

  // Runs the collective. Blocks until this member's part is complete. Throws std::invalid_argument before any byte is
  // sent if the collective is inconsistent, and what Transport::wait throws.
  virtual void run(const Collective& collective) = 0;

  // Whether an all_reduce like this one may use Collective::pieces. Members decide independently of one another. The
  // thread that runs collectives.
  virtual bool takes_pieces(const Collective& /*collective*/) const { return false; }

  // This group as one whose results may stay in its members' memory, where shard_bytes() is not 0; null: never.
  virtual ShardedGroup* sharded() { return nullptr; }

  // The name of the algorithm that run() uses, for counters and logs. The same on all members.
  virtual std::string_view algorithm(const Collective& collective) const = 0;
};

// The members of a group.
struct Members {
  std::vector<int> ranks;                  // world ranks in ascending order, including this rank
  std::uint32_t set = 0;                   // process set, for counters
  std::vector<int> hosts = {};             // by member: equal numbers share a host; empty: one host
  MachineCost costs = usual_costs();       // for the choice of algorithms; the same on all members
  std::shared_ptr<ShmArenas> arenas = {};  // memory shared by the members of a host; null: none
};

// A group over a transport. It runs every collective by a schedule (ring/group/choose.h). The transport and the
// counters outlive it. Throws std::invalid_argument if the members or the configured algorithms are not valid.
std::unique_ptr<Group> make_transport_group(Transport& transport, Members members, const Config& config,
                                            Counters& counters);
// A group over the transport of `links` that also uses their shared memory.
std::unique_ptr<Group> make_transport_group(const Links& links, Members members, const Config& config,
                                            Counters& counters);

}  // namespace horo
