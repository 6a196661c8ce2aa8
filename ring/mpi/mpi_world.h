// MpiWorld: a communicator of all ranks, which a session uses. Its streams (make_mpi_stream) copy bytes into memory of
// their own, so MPI never holds the address of a caller's memory. After the death of a rank MPI cannot cancel a send to
// it; then only that memory is kept until the process ends.
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

// Memory for messages, part of a block that lives as long as any part of it. On huge pages where the system has them,
// because MPI copies it between processes through the kernel, which pins every page.
using MpiMemory = std::shared_ptr<std::byte[]>;

// One thread at a time sends and receives messages; any thread may call the other functions.
class MpiWorld {
 public:
  MpiWorld(const MpiApi& api, MpiComm comm) : api_(api), comm_(comm) {}
  // Frees the communicator, unless a message of it has not ended.
  ~MpiWorld();
  MpiWorld(const MpiWorld&) = delete;
  MpiWorld& operator=(const MpiWorld&) = delete;

  const MpiApi& api() const { return api_; }
  MpiComm comm() const { return comm_; }
  std::string text_of(int error) const;

  // Makes progress for messages that other ranks wait for.
  void progress() noexcept { api_.progress(comm_); }

  // Ranks are lost, and MPI cannot be finalized; see MpiApi. Any thread.
  void give_up(const char* why) noexcept { api_.give_up(why); }

  // `bytes` is at most kMostMemoryBytes. The memory begins on a page of its own. Throws std::bad_alloc.
  static constexpr std::size_t kMostMemoryBytes = 2 << 20;
  MpiMemory take_memory(std::size_t bytes);

  // Keeps memory that MPI may still read or write until the process ends.
  void keep(MpiMemory memory) noexcept;

 private:
  const MpiApi& api_;
  MpiComm comm_;
  Mutex mutex_;
  MpiMemory block_ GUARDED_BY(mutex_);                       // the latest block
  std::size_t taken_ GUARDED_BY(mutex_) = kMostMemoryBytes;  // bytes of it
  std::atomic<bool> is_kept_{false};                         // orders nothing
};

// A rank and the socket to it; the end of the socket shows the end of the rank.
struct MpiPeer {
  int rank;
  int socket;
};
// Starts MPI, unless this process has started it, and makes the communicator. Starting MPI blocks until all ranks do
// the same, without a deadline, so all ranks have to be connected. Throws std::invalid_argument (the rank, size or
// thread level of MPI do not fit, or MPI has ended), PeerLost (a rank ended, or has not started MPI by `until`) or
// std::runtime_error (an error of MPI).
std::shared_ptr<MpiWorld> open_mpi_world(const MpiApi& api, const Config& config, std::span<const MpiPeer> peers,
                                         TimePoint until);

}  // namespace horo
