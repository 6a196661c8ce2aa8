// The table of functions that the plug-in libhoro_mpi.so gives libhoro.so: the few calls of MPI that horo needs,
// without a type of MPI. The types of Open MPI and MPICH differ, so the plug-in alone is compiled against a header of
// MPI (ring/mpi/mpi_plugin.cc).
//
// All calls return 0 or an error of MPI, for error_text(). None throws, and none but start() blocks. Any thread; the
// plug-in serializes the calls.
#pragma once

#include <cstddef>
#include <cstdint>

namespace horo {

// Increased with every change of the declarations below.
inline constexpr std::uint32_t kMpiApiVersion = 3;
inline constexpr char kMpiApiEntry[] = "horo_mpi_api";  // const MpiApi* horo_mpi_api(void)

// MPI_THREAD_SINGLE, ...: the threads that may call MPI.
enum class MpiThreads : std::int32_t { kSingle, kFunneled, kSerialized, kMultiple };

struct MpiPlace {
  std::int32_t rank = 0;
  std::int32_t size = 0;
  MpiThreads threads = MpiThreads::kSingle;
  bool was_ended = false;  // MPI_Finalize was called; the other fields are not set
};

using MpiComm = void*;
using MpiRequest = void*;  // null: none

struct MpiApi {
  std::uint32_t version;
  const char* (*library)();  // "Open MPI v4.1.4, ..."; may be called before start()

  // Initializes MPI, unless this process has done so. Blocks until all ranks of MPI_COMM_WORLD have done the same,
  // without a deadline. If MPI is initialized here, it is finalized when the process exits with status 0.
  int (*start)(MpiPlace* place);
  // Starts a duplicate of MPI_COMM_WORLD that returns errors. The communicator may be used when the request has ended.
  int (*duplicate)(MpiComm* comm, MpiRequest* request);
  void (*free)(MpiComm* comm);

  // Messages from one rank to another arrive in order. A send ends when a receive has matched it.
  int (*send)(MpiComm comm, int peer, const void* from, int bytes, MpiRequest* request);
  int (*receive)(MpiComm comm, int peer, void* into, int bytes, MpiRequest* request);
  // `done`: the request has ended and is null now; `bytes`: the length of the message, if it was a receive.
  int (*test)(MpiRequest* request, bool* done, int* bytes);
  // Cancels a receive. The request must still be tested until it is done.
  int (*cancel)(MpiRequest* request);
  // Makes progress for all messages of this rank.
  int (*progress)(MpiComm comm);

  void (*error_text)(int error, char* text, std::size_t room);

  // Ranks are lost, and MPI_Finalize would wait for them. From now on MPI_Finalize and exit() end this process at once,
  // with `why` on stderr. The first call counts.
  void (*give_up)(const char* why);
};

}  // namespace horo
