// Open MPI is loaded before the plug-in and with global symbols: its components need them, and a missing MPI can be
// distinguished from a missing plug-in. Two MPIs in one process would resolve each other's symbols, so a second one is
// refused.

#include "ring/mpi/mpi_library.h"

#include <dlfcn.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <stdexcept>
#include <string>

#include "horo/base/plugin.h"
#include "horo/base/say.h"

namespace horo {
namespace {

constexpr const char* kOpenMpi = "libmpi.so.40";
constexpr const char* kMpich = "libmpi.so.12";
constexpr const char* kPlugin = "libhoro_mpi.so";

[[noreturn]] void refuse_mpi(const std::string& why) {
  throw std::invalid_argument("HORO_BACKEND=mpi: " + why);
}

std::string why_not_loaded() {
  const char* why = ::dlerror();
  return why == nullptr ? "no reason is known" : why;
}

// "MPICH Version: 4.0.2", of the MPI whose symbols are in this process.
std::string version_of(void* library) {
  using GetVersion = int (*)(char*, int*);
  const auto get = reinterpret_cast<GetVersion>(::dlsym(library, "MPI_Get_library_version"));
  std::string text(8'192, '\0');  // the longest text that an MPI writes, MPICH's
  int length = 0;
  if (get == nullptr || get(text.data(), &length) != 0) return "unknown";
  std::string line = text.substr(0, text.find_first_of(std::string(",\n\0", 3)));
  std::replace(line.begin(), line.end(), '\t', ' ');
  return line;
}

void check_for_another_mpi() {
  if (void* mpich = ::dlopen(kMpich, RTLD_NOW | RTLD_NOLOAD)) {
    refuse_mpi(say("this process uses another MPI (", version_of(mpich), "): expected Open MPI (", kOpenMpi, ")"));
  }
}

// Checks the variables of the launchers from which Open MPI takes rank and size.
void check_launcher() {
  for (const char* variable : {"OMPI_COMM_WORLD_SIZE", "PMIX_RANK", "PMI_RANK", "PMI_FD"}) {
    if (std::getenv(variable) != nullptr) return;
  }
  refuse_mpi(
      "this process was not started by MPI (neither OMPI_COMM_WORLD_SIZE nor PMIX_RANK is set): expected Open MPI's "
      "mpirun, or srun --mpi=pmix");
}

bool is_started() {
  void* const mpi = ::dlopen(kOpenMpi, RTLD_NOW | RTLD_NOLOAD);
  if (mpi == nullptr) return false;
  using Initialized = int (*)(int*);
  const auto initialized = reinterpret_cast<Initialized>(::dlsym(mpi, "MPI_Initialized"));
  int flag = 0;
  const bool is_initialized = initialized != nullptr && initialized(&flag) == 0 && flag != 0;
  ::dlclose(mpi);
  return is_initialized;
}

const MpiApi& open_mpi(const std::string& path) {
  std::error_code error;
  if (!std::filesystem::exists(path, error)) {
    refuse_mpi(say("there is no ", path,
                   ": expected the plug-in beside libhoro.so, which is built where Open MPI's "
                   "headers are (Debian: libopenmpi-dev), or its path in HORO_MPI_LIBRARY"));
  }
  if (::dlopen(kOpenMpi, RTLD_NOW | RTLD_GLOBAL) == nullptr) {
    refuse_mpi(say("Open MPI cannot be loaded (", why_not_loaded(), "): expected ", kOpenMpi,
                   " where the system looks for libraries (Debian: openmpi-bin; LD_LIBRARY_PATH for your own)"));
  }
  return *static_cast<const MpiApi*>(open_plugin(path, {"HORO_BACKEND=mpi", kMpiApiEntry, kMpiApiVersion}));
}

}  // namespace

const MpiApi& load_mpi(const Config& config) {
  check_for_another_mpi();
  if (!is_started()) check_launcher();
  return open_mpi(plugin_path(config.mpi_library, kPlugin));
}

}  // namespace horo
