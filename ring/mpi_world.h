// MpiWorld: what a session has of MPI, a communicator of all ranks. The bytes of its streams (make_mpi_stream) go
// through memory of their own, so MPI never has the address of a caller's: where MPI cannot give a message up, which
// it cannot after a death, that memory alone is kept.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "horo/base/config.h"
#include "horo/base/time.h"
#include "ring/mpi_api.h"

namespace horo {

// Touched by one thread at a time, but for give_up().
class MpiWorld {
 public:
  MpiWorld(const MpiApi& api, MpiComm comm) : api_(api), comm_(comm) {}
  // Frees the communicator, unless a message of it could not be ended.
  ~MpiWorld();
  MpiWorld(const MpiWorld&) = delete;
  MpiWorld& operator=(const MpiWorld&) = delete;

  const MpiApi& api() const { return api_; }
  MpiComm comm() const { return comm_; }
  std::string text_of(int error) const;

  // Moves what can be moved for others, though nobody here waits for anything.
  void progress() noexcept { api_.progress(comm_); }

  // Ranks are lost, and MPI with them; see MpiApi. Any thread.
  void give_up(const char* why) noexcept { api_.give_up(why); }

  // Memory that MPI may still read or write; never freed.
  void keep(std::unique_ptr<std::byte[]> memory) noexcept;

 private:
  const MpiApi& api_;
  MpiComm comm_;
  bool is_kept_ = false;
};

// Starts MPI, if nobody has, and makes the communicator. `sockets`: to the other ranks, of which an end is heard.
// Throws std::invalid_argument (MPI has another idea of ranks or threads, or has ended already), PeerLost (somebody
// ended, or did not come until `until`) or std::runtime_error (MPI fails). Starting MPI has no deadline: it waits for
// all ranks, so all have to be there.
struct MpiPeer {
  int rank;
  int socket;
};
std::shared_ptr<MpiWorld> open_mpi_world(const MpiApi& api, const Config& config, std::span<const MpiPeer> peers,
                                         TimePoint until);

}  // namespace horo
