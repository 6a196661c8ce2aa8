// The state that the threads of a StreamTransport share under one lock: the posted operations, the progress role and
// the failure.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "horo/base/error.h"
#include "horo/base/mutex.h"
#include "horo/base/say.h"
#include "ring/mpi/mpi_world.h"
#include "ring/os/waiting.h"
#include "ring/transport/op_table.h"

namespace horo {

// The error of a rank that has no memory left. Made in advance, because making it takes memory.
inline PeerLost out_of_memory_error(int rank) {
  return PeerLost(rank, say("rank ", rank, ": out of memory (std::bad_alloc)"));
}

struct StreamState {
  StreamState(int own_rank, int size, std::size_t max_early_bytes, std::shared_ptr<MpiWorld> mpi_world)
      : rank(own_rank), mpi(std::move(mpi_world)), left(static_cast<std::size_t>(size)), table(size, max_early_bytes) {}

  // Ends the transport; the first failure counts. Wakes all waiting threads.
  void fail(const PeerLost& error) REQUIRES(mutex) {
    if (!failure) failure.emplace(error);
    // If this rank alone has failed, all ranks can still finalize MPI.
    if (mpi && error.origin() != rank) mpi->give_up(error.what());
    wake_progress();
    changed.notify_all();
  }

  // Ends the sleep of the holder of the progress role.
  void wake_progress() REQUIRES(mutex) {
    if (is_sleeping) wakeup.wake();
  }

  bool has_left(int peer) const REQUIRES(mutex) { return left[static_cast<std::size_t>(peer)] != 0; }

  const int rank;
  const std::shared_ptr<MpiWorld> mpi;  // null: MPI carries no bytes
  Wakeup wakeup;
  mutable Mutex mutex;
  CondVar changed;  // operations have ended, the progress role is free, the transport has failed
  bool is_progressing GUARDED_BY(mutex) = false;  // a thread holds the progress role
  bool is_sleeping GUARDED_BY(mutex) = false;     // that thread sleeps in poll
  std::optional<PeerLost> failure GUARDED_BY(mutex);
  std::vector<char> left GUARDED_BY(mutex);  // by rank: its connections have ended in good order
  OpTable table GUARDED_BY(mutex);
};

}  // namespace horo
