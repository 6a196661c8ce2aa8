// libhoro_mpi.so, found and loaded when a session asks for it (HORO_BACKEND=mpi).
#pragma once

#include "horo/base/config.h"
#include "ring/mpi/mpi_api.h"

namespace horo {

// Loads the plug-in, once in a process and for ever, and looks whether MPI can work here; nothing of MPI is started.
// Throws std::invalid_argument: there is no plug-in (Config::mpi_library), it is of another version, there is no Open
// MPI, this process uses another MPI, or none has started it.
const MpiApi& load_mpi(const Config& config);

}  // namespace horo
