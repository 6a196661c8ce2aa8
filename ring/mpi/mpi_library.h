// Finds and loads libhoro_mpi.so when a session needs it (HORO_BACKEND=mpi).
#pragma once

#include "horo/base/config.h"
#include "ring/mpi/mpi_api.h"

namespace horo {

// Loads the plug-in, once in a process, and checks whether MPI can work here. Does not start MPI. Throws
// std::invalid_argument: there is no plug-in (Config::mpi_library), it has another version, Open MPI is not installed,
// this process uses another MPI, or it was not started by an MPI launcher.
const MpiApi& load_mpi(const Config& config);

}  // namespace horo
