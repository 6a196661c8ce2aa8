// An MPI whose ranks are threads of this process: the MpiApi of libhoro_mpi.so, with selectable faults.
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
  int claimed_size = 0;         // the size that MPI reports; 0: `size`
  int stays_away = -1;          // this rank never joins duplicate(), which then ends on no rank
  int most_messages = 1 << 30;  // a send beyond this number is an error
};

class FakeMpi;
std::shared_ptr<FakeMpi> make_fake_mpi(const FakeMpiOptions& options);

// The table. start() and duplicate() act for the rank that this thread set with play_mpi_rank().
const MpiApi& fake_mpi_api();
void play_mpi_rank(std::shared_ptr<FakeMpi> mpi, int rank);

// The first reason of give_up() since the last call of this function, in all worlds; "": none.
std::string take_given_up();
// The number of requests that have not ended.
std::size_t open_requests(const FakeMpi& mpi);

}  // namespace horo::test
