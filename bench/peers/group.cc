// horo's driver at the Group interface where MPI starts the ranks: driver_group PATH
#include <cstdio>
#include <exception>

#include "bench/against/group_driver.h"

int main(int argc, char** argv) {
  try {
    return horo::bench::run_group_driver(argc > 1 ? argv[1] : "mpi");
  } catch (const std::exception& error) {
    std::fprintf(stderr, "horo: %s\n", error.what());
    return 1;
  }
}
