// LocalWorld: the job key, the address of rank 0, and the environment and cores of this host's ranks.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "horo/base/run_table.h"
#include "ring/os/socket.h"
#include "tools/horo/machine/descriptor.h"
#include "tools/horo/run/launcher.h"

namespace horo::tools {

// A place for a rank of this host. One process after another may be in it.
struct RankSlot {
  int local_rank = 0;
  std::vector<int> cores;  // empty: all that this process may use, as in slots without a rank at the start
};

class LocalWorld {
 public:
  using Variables = std::map<std::string, std::string>;

  // Creates a job key or reads the key file. If rank 0 runs on this host, reserves its port for the lifetime of this
  // object. Throws std::invalid_argument or std::system_error.
  explicit LocalWorld(const Launch& launch);

  const RankSlot& slot(int local_rank) const { return slots_[static_cast<std::size_t>(local_rank)]; }
  // Whether a rank is none of the start: it joins. Its variables have a size that is above its number.
  bool joins(int rank) const { return rank >= launch_.size(); }
  // The variables of a rank in this slot that differ from this process's. They have the number of the key's descriptor,
  // never the key. OMP_NUM_THREADS, PYTHONUNBUFFERED, MASTER_ADDR and MASTER_PORT are set only if this process's
  // environment does not have them; the last two also if they describe another job, whose rank has started this
  // process.
  Variables variables(const RankSlot& slot, int rank) const;
  // The complete environment of that rank, "NAME=value".
  std::vector<std::string> environment(const RankSlot& slot, int rank) const;
  int key_fd() const { return key_.get(); }
  // What the ranks of this host share with this process; null where memory files are not available.
  RunTable* table() const { return table_.get(); }

 private:
  const Launch& launch_;
  Descriptor key_;         // a sealed memory file
  Descriptor port_;        // bound, not listening: the kernel gives the port to no other socket; rank 0 may listen
  Descriptor torch_port_;  // the same for rank 0 of torch.distributed, of a job on one host
  std::string address_;
  std::vector<RankSlot> slots_;  // by local rank
  std::unique_ptr<RunTable> table_;
};

// A bound socket that keeps the port from other sockets, but for one that listens; not open, with errno, if the address
// is not available.
Descriptor reserve_address(const Address& address);

// Variables that other launchers set for their ranks; they do not describe the ranks of this job.
bool is_foreign_variable(std::string_view name);

}  // namespace horo::tools
