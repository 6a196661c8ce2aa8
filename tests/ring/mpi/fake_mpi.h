// An MPI whose ranks are threads of this process: MpiApi as libhoro_mpi.so gives it, with faults to choose.
#pragma once

#include <atomic>
#include <memory>
#include <string>

#include "ring/mpi/mpi_api.h"

namespace horo::test {

struct FakeMpiOptions {
  int size = 1;
  MpiThreads threads = MpiThreads::kMultiple;
  bool was_ended = false;
  int claimed_size = 0;         // what MPI says instead of `size`; 0: the same
  int stays_away = -1;          // this rank never ends a duplicate(), nor does anybody else then
  int most_messages = 1 << 30;  // more are an error, of whoever sends them
};

class FakeMpi;
std::shared_ptr<FakeMpi> make_fake_mpi(const FakeMpiOptions& options);

// The table. start() and duplicate() are this thread's rank's, which play_mpi_rank() says.
const MpiApi& fake_mpi_api();
void play_mpi_rank(std::shared_ptr<FakeMpi> mpi, int rank);

// What give_up() was told first since this was last asked, in all worlds; "": nothing.
std::string take_given_up();
// Requests that were begun and have not ended.
std::size_t open_requests(const FakeMpi& mpi);

}  // namespace horo::test
