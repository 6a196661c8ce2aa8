// What libhoro_mpi.so gives libhoro.so: the few calls of MPI that horo needs, without a type of MPI. Open MPI and
// MPICH have different ones, so only the plug-in is compiled against a header of theirs (ring/mpi/mpi_plugin.cc).
//
// All calls return 0 or an error of MPI, for error_text(); none throws, and none but start() waits for anybody.
// Threads: any, one at a time; the plug-in sees to that itself.
#pragma once

#include <cstddef>
#include <cstdint>

namespace horo {

// Rises with every change of what follows.
inline constexpr std::uint32_t kMpiApiVersion = 3;
inline constexpr char kMpiApiEntry[] = "horo_mpi_api";  // const MpiApi* horo_mpi_api(void)

// MPI_THREAD_SINGLE, ...: from which threads MPI may be called.
enum class MpiThreads : std::int32_t { kSingle, kFunneled, kSerialized, kMultiple };

struct MpiPlace {
  std::int32_t rank = 0;
  std::int32_t size = 0;
  MpiThreads threads = MpiThreads::kSingle;
  bool was_ended = false;  // MPI_Finalize was called: the rest is not known
};

using MpiComm = void*;
using MpiRequest = void*;  // null: none

struct MpiApi {
  std::uint32_t version;
  const char* (*library)();  // "Open MPI v4.1.4, ..."; may be called before start()

  // Initialises MPI, if nobody has; that waits for all ranks of MPI_COMM_WORLD, without a deadline. Who initialises it
  // here has it finalised at the process's exit with status 0.
  int (*start)(MpiPlace* place);
  // Begins to make a communicator of all ranks, whose errors are returned; it may be used when the request has ended.
  int (*duplicate)(MpiComm* comm, MpiRequest* request);
  void (*free)(MpiComm* comm);

  // Messages from one rank to another arrive in order. A send has ended when its receive has begun.
  int (*send)(MpiComm comm, int peer, const void* from, int bytes, MpiRequest* request);
  int (*receive)(MpiComm comm, int peer, void* into, int bytes, MpiRequest* request);
  // `done`: it has ended, with so many bytes if it was a receive, and is null now.
  int (*test)(MpiRequest* request, bool* done, int* bytes);
  // Of a receive; it still has to be tested until it is done.
  int (*cancel)(MpiRequest* request);
  // Moves what can be moved of others' and our own messages.
  int (*progress)(MpiComm comm);

  void (*error_text)(int error, char* text, std::size_t room);

  // Ranks are lost: MPI_Finalize would wait for them, so whoever calls it, or exit(), ends this process with `why` on
  // stderr. The first call counts.
  void (*give_up)(const char* why);
};

}  // namespace horo
