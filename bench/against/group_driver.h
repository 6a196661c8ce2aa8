// horo's driver at the Group interface: a bare group without a session, as a lane has one.
#pragma once

#include <string>

namespace horo::bench {

// One rank of a world that a comparison started. `path`: shm-bucket, shm-user, tcp, mpi or mpi-fast. Returns the exit
// code of the rank.
int run_group_driver(const std::string& path);

}  // namespace horo::bench
