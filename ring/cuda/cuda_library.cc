#include "ring/cuda/cuda_library.h"

#include <array>
#include <filesystem>
#include <stdexcept>
#include <string>

#include "horo/base/plugin.h"
#include "horo/base/say.h"

namespace horo {
namespace {

constexpr const char* kPlugin = "libhoro_cuda.so";
constexpr const char* kSubject = "CUDA tensors";

[[noreturn]] void refuse_cuda(const std::string& why) {
  throw std::invalid_argument(say(kSubject, ": ", why));
}

const CudaApi& open_cuda(const std::string& path) {
  std::error_code error;
  if (!std::filesystem::exists(path, error)) {
    refuse_cuda(
        say("there is no ", path, ": expected the plug-in beside libhoro.so, or its path in HORO_CUDA_LIBRARY"));
  }
  return *static_cast<const CudaApi*>(open_plugin(path, {kSubject, kCudaApiEntry, kCudaApiVersion}));
}

}  // namespace

CudaLibrary load_cuda(const Config& config) {
  CudaLibrary library{&open_cuda(plugin_path(config.cuda_library, kPlugin))};
  std::array<char, 512> why{};
  if (library.api->start(&library.devices, why.data(), why.size()) != 0) refuse_cuda(why.data());
  if (library.devices < 1) {
    refuse_cuda("the driver shows no device to this process: look at nvidia-smi and at CUDA_VISIBLE_DEVICES");
  }
  return library;
}

}  // namespace horo
