#include "ring/cuda/cuda_library.h"

#include <dlfcn.h>

#include <array>
#include <filesystem>
#include <stdexcept>
#include <string>

#include "horo/base/say.h"

namespace horo {
namespace {

constexpr const char* kPlugin = "libhoro_cuda.so";

[[noreturn]] void refuse_cuda(const std::string& why) {
  throw std::invalid_argument("CUDA tensors: " + why);
}

// The plug-in is beside the library or executable that contains this code.
std::string plugin_path(const Config& config) {
  if (!config.cuda_library.empty()) return config.cuda_library;
  Dl_info here{};
  if (::dladdr(reinterpret_cast<const void*>(&load_cuda), &here) == 0 || here.dli_fname == nullptr) return kPlugin;
  return (std::filesystem::path(here.dli_fname).parent_path() / kPlugin).string();
}

const CudaApi& open_plugin(const std::string& path) {
  std::error_code error;
  if (!std::filesystem::exists(path, error)) {
    refuse_cuda(
        say("there is no ", path, ": expected the plug-in beside libhoro.so, or its path in HORO_CUDA_LIBRARY"));
  }
  void* const plugin = ::dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
  if (plugin == nullptr) refuse_cuda(say("the plug-in cannot be loaded: ", ::dlerror()));
  using Entry = const CudaApi* (*)();
  const auto entry = reinterpret_cast<Entry>(::dlsym(plugin, kCudaApiEntry));
  if (entry == nullptr) refuse_cuda(say(path, " is no plug-in of horo: it has no ", kCudaApiEntry, "()"));
  const CudaApi* api = entry();
  if (api->version != kCudaApiVersion) {
    refuse_cuda(say(path, " is of another version of horo: its table has version ", api->version, ", expected ",
                    kCudaApiVersion));
  }
  return *api;
}

}  // namespace

CudaLibrary load_cuda(const Config& config) {
  CudaLibrary library{&open_plugin(plugin_path(config))};
  std::array<char, 512> why{};
  if (library.api->start(&library.devices, why.data(), why.size()) != 0) refuse_cuda(why.data());
  if (library.devices < 1) {
    refuse_cuda("the driver shows no device to this process: look at nvidia-smi and at CUDA_VISIBLE_DEVICES");
  }
  return library;
}

}  // namespace horo
