// horo's part in a contest at the Group interface where MPI starts the ranks: contest_group PATH
#include <cstdio>
#include <exception>

#include "bench/against/against.h"

int main(int argc, char** argv) {
  try {
    return horo::tools::bench_contestant(argc > 1 ? argv[1] : "mpi");
  } catch (const std::exception& error) {
    std::fprintf(stderr, "horo: %s\n", error.what());
    return 1;
  }
}
