// MpiWorld: what a session has of MPI, a communicator of all ranks. The bytes of its streams (make_mpi_stream) go
// through memory of their own, so MPI never has the address of a caller's: where MPI cannot give a message up, which
// it cannot after a death, that memory alone is kept.
#pragma once

#include <atomic>
#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "horo/base/config.h"
#include "horo/base/mutex.h"
#include "horo/base/time.h"
#include "ring/mpi/mpi_api.h"

namespace horo {

// Memory for messages, shared with others in a block that lives as long as any of them. On huge pages, where there are
// any: MPI reads it from one process to another by way of the kernel, which looks up every page.
using MpiMemory = std::shared_ptr<std::byte[]>;

// Messages by one thread at a time; the rest by any.
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

  // At most kMostMemoryBytes, on a page of its own. Throws std::bad_alloc.
  static constexpr std::size_t kMostMemoryBytes = 2 << 20;
  MpiMemory take_memory(std::size_t bytes);

  // Memory that MPI may still read or write; never freed.
  void keep(MpiMemory memory) noexcept;

 private:
  const MpiApi& api_;
  MpiComm comm_;
  Mutex mutex_;
  MpiMemory block_ GUARDED_BY(mutex_);                       // the latest
  std::size_t taken_ GUARDED_BY(mutex_) = kMostMemoryBytes;  // of it
  std::atomic<bool> is_kept_{false};                         // orders nothing
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
