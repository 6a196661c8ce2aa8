// Memory and streams of the fake of CUDA, for tests.
#pragma once

#include <dlfcn.h>

#include <cstdlib>
#include <vector>

#include "horo/base/config.h"
#include "tests/ring/cuda/fake_cuda.h"
#include "tests/ring/nccl/fake_nccl.h"

namespace horo {

// The fake's functions for tests; the library is the one that sessions load.
template <class Function>
Function* from_fake(const char* name) {
  static void* const library = ::dlopen(HORO_FAKE_CUDA, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
  auto* const found = library == nullptr ? nullptr : reinterpret_cast<Function*>(::dlsym(library, name));
  if (found == nullptr) std::abort();
  return found;
}

// Tensors on devices go by way of the host.
inline Config on_fake() {
  Config config;
  config.cuda_library = HORO_FAKE_CUDA;
  config.gpu_backend = "host";
  return config;
}

// They are reduced by the fake of NCCL.
inline Config on_fake_nccl() {
  Config config = on_fake();
  config.nccl_library = HORO_FAKE_CUDA;
  config.gpu_backend = "nccl";
  return config;
}

inline FakeCudaCounts device_counts() {
  FakeCudaCounts counts{};
  from_fake<decltype(fake_cuda_counts)>("fake_cuda_counts")(&counts);
  return counts;
}

inline FakeNcclCounts nccl_counts() {
  FakeNcclCounts counts{};
  from_fake<decltype(fake_nccl_counts)>("fake_nccl_counts")(&counts);
  return counts;
}

inline CudaStream make_stream(bool is_capturing = false) {
  return from_fake<decltype(fake_cuda_stream)>("fake_cuda_stream")(is_capturing);
}

// Memory of a device that a stream of the caller's writes and reads.
class DeviceMemory {
 public:
  DeviceMemory(CudaStream stream, std::size_t bytes)
      : stream_(stream), bytes_(bytes), data_(from_fake<decltype(fake_cuda_allocate)>("fake_cuda_allocate")(bytes)) {
    write(std::vector<std::byte>(bytes, std::byte{0x5a}));
  }
  // The stream ends before its memory.
  ~DeviceMemory() {
    if (is_kept_) return;
    read();
    from_fake<decltype(fake_cuda_free)>("fake_cuda_free")(data_);
  }
  DeviceMemory(const DeviceMemory&) = delete;
  DeviceMemory& operator=(const DeviceMemory&) = delete;

  void* data() const { return data_; }
  std::size_t bytes() const { return bytes_; }
  void keep() { is_kept_ = true; }  // for good: its stream never ends
  // Both by the stream, late.
  void write(const std::vector<std::byte>& values) {
    from_fake<decltype(fake_cuda_write)>("fake_cuda_write")(stream_, data_, values.data(), values.size());
  }
  std::vector<std::byte> read() const {
    std::vector<std::byte> values(bytes_);
    from_fake<decltype(fake_cuda_read)>("fake_cuda_read")(stream_, values.data(), data_, bytes_);
    return values;
  }

 private:
  const CudaStream stream_;
  const std::size_t bytes_;
  void* const data_;
  bool is_kept_ = false;
};

}  // namespace horo
