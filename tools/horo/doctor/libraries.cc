// The build of horo, and the libraries and launchers that it finds at run time. Libraries are loaded to read their
// versions, so the report has those that a job would load.
#include <dlfcn.h>
#include <link.h>
#include <unistd.h>

#include <array>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <sstream>
#include <stdexcept>

#include "horo/horo.h"
#include "ring/cuda/cuda_library.h"
#include "ring/reduce/kernels.h"
#include "tools/horo/doctor/doctor.h"
#include "tools/horo/machine/python_folders.h"

namespace horo::tools {
namespace {

namespace fs = std::filesystem;

constexpr const char* kOpenMpi = "libmpi.so.40";

class Library {
 public:
  explicit Library(const std::string& name)
      : handle_(::dlopen(name.c_str(), RTLD_LAZY | RTLD_LOCAL), [](void* h) { ::dlclose(h); }) {
    if (!handle_) error_ = ::dlerror();
  }
  bool is_open() const { return handle_ != nullptr; }
  const std::string& error() const { return error_; }

  std::string path() const {
    link_map* map = nullptr;
    if (::dlinfo(handle_.get(), RTLD_DI_LINKMAP, &map) != 0 || map == nullptr) return "?";
    return map->l_name;
  }
  // Null if the library has no such function.
  template <class Function>
  Function* function(const char* name) const {
    return reinterpret_cast<Function*>(::dlsym(handle_.get(), name));
  }

 private:
  std::unique_ptr<void, void (*)(void*)> handle_;
  std::string error_;
};

std::string dotted(int major, int minor) {
  return std::to_string(major) + "." + std::to_string(minor);
}

std::string cuda_version(const Library& library) {
  auto* get = library.function<int(int*)>("cuDriverGetVersion");
  int version = 0;
  if (get == nullptr || get(&version) != 0) return "version unknown";
  return dotted(version / 1000, version % 1000 / 10);  // 12040 is 12.4
}

std::string nccl_version(const Library& library) {
  auto* get = library.function<int(int*)>("ncclGetVersion");
  int version = 0;
  if (get == nullptr || get(&version) != 0) return "version unknown";
  const int major = version >= 10'000 ? 10'000 : 1'000;  // 22907 is 2.29.7, 2708 is 2.7.8
  return dotted(version / major, version % major / 100) + "." + std::to_string(version % 100);
}

std::string mpi_version(const Library& library) {
  constexpr std::size_t kMaxText = 8192;  // MPI_MAX_LIBRARY_VERSION_STRING of both Open MPI (256) and MPICH (8192)
  auto* get = library.function<int(char*, int*)>("MPI_Get_library_version");
  std::string text(kMaxText, '\0');
  int length = 0;
  if (get == nullptr || get(text.data(), &length) != 0) return "version unknown";
  text.resize(text.find('\0'));
  return text.substr(0, text.find_first_of(",\n"));
}

template <class Version>
std::string describe(const std::vector<std::string>& candidates, const Version& version, const char* use) {
  std::string broken;
  for (const std::string& name : candidates) {
    const Library library(name);
    if (library.is_open()) return version(library) + ", " + library.path() + "; " + use + broken;
    if (name.find('/') != std::string::npos) broken = "; " + name + " cannot be loaded: " + library.error();
  }
  return "not found" + broken;
}

Value on_path(const std::string& program) {
  std::istringstream path(std::getenv("PATH") == nullptr ? "" : std::getenv("PATH"));
  for (std::string folder; std::getline(path, folder, ':');) {
    const std::string file = (fs::path(folder) / program).string();
    if (::access(file.c_str(), X_OK) == 0) return file;
  }
  return {};
}

// The kernels in use, and all that this processor supports.
std::string kernels_text() {
  std::string there;
  for (const Kernels* kernels : all_kernels()) there += std::string(there.empty() ? "" : ", ") + kernels->name;
  try {
    return std::string(kernels_in_use().name) + "; this processor has " + there;
  } catch (const std::invalid_argument& error) {
    return error.what();
  }
}

// The devices that horo can use, or why there are none.
std::string cuda_text() {
  Config config;
  config.cuda_library = installed_cuda_plugin();
  try {
    const CudaLibrary cuda = load_cuda(config);
    std::string text = "HORO_GPU_BACKEND says how CUDA tensors are reduced";
    for (int device = 0; device < cuda.devices; ++device) {
      std::array<char, 300> name{};
      cuda.api->describe(device, name.data(), name.size());
      text += std::string(device == 0 ? ": " : "; ") + "cuda:" + std::to_string(device) + " is " + name.data();
    }
    return text;
  } catch (const std::invalid_argument& error) {
    return error.what();
  }
}

}  // namespace

void examine_build(DoctorReport& report) {
  Section& horo = report.section("horo");
  horo.add("version", std::string(kVersion));
#if defined(__clang__)
  horo.add("compiler", std::string("clang ") + __clang_version__);
#else
  horo.add("compiler", std::string("gcc ") + __VERSION__);
#endif
  horo.add("executable", fs::read_symlink("/proc/self/exe").string());
  horo.add("kernels", kernels_text());
  horo.add("tcp", std::string("built"));
  horo.add("shared_memory", std::string("built; HORO_TRANSPORT=shm or auto selects it"));
  horo.add("mpi", std::string("built; HORO_BACKEND=mpi selects it; libhoro_mpi.so must be beside libhoro.so"));
  horo.add("cuda", cuda_text());
  horo.add("nccl", std::string("built; it reduces CUDA tensors where each rank has a GPU of its own, else they go by "
                               "way of the hosts' memory"));
}

void examine_libraries(DoctorReport& report) {
  std::vector<std::string> nccl;
  std::error_code error;
  for (const fs::path& folder : site_packages()) {
    const fs::path file = folder / "nvidia/nccl/lib/libnccl.so.2";
    if (fs::exists(file, error)) nccl.push_back(file.string());
  }
  nccl.emplace_back("libnccl.so.2");
  Section& found = report.section("found");
  found.add("cuda_driver", describe({"libcuda.so.1"}, cuda_version, "libhoro_cuda.so uses it"));
  found.add("nccl", describe(nccl, nccl_version, "HORO_GPU_BACKEND=nccl or auto uses it"));
  found.add("mpi", describe({kOpenMpi, "libmpi.so.12"}, mpi_version, "HORO_BACKEND=mpi uses it, if it is Open MPI"));
  for (const char* launcher : {"mpirun", "srun", "torchrun"}) found.add(launcher, on_path(launcher));
}

}  // namespace horo::tools
