#include "tests/ring/cuda/fake_cuda.h"

#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <future>
#include <vector>

#include "tests/ring/cuda/fake_streams.h"
#include "tests/ring/cuda/host_kernels.h"

namespace {

void copy_bytes(void* to, const void* from, std::size_t bytes) {
  if (bytes > 0) std::memcpy(to, from, bytes);
}

void move_to_aliases(horo::ReduceArgs& args) {
  std::size_t inputs = 0;
  for (std::size_t at = 0; at < args.steps; ++at) inputs += args.program[at];
  for (std::size_t i = 0; i < inputs; ++i) args.inputs[i] = FakeCuda::get().alias_of(args.inputs[i]);
  args.out = FakeCuda::get().alias_of(args.out);
}

void move_to_aliases(horo::CopyArgs& args) {
  for (std::size_t i = 0; i < args.rows; ++i) {
    args.from[i] = FakeCuda::get().alias_of(args.from[i]);
    args.to[i] = FakeCuda::get().alias_of(args.to[i]);
  }
}

thread_local std::vector<int> entered;

int begin(const char* function) {
  if (const char* hangs = std::getenv("HORO_FAKE_CUDA_HANGS"); hangs != nullptr && std::strcmp(hangs, function) == 0) {
    for (;;) ::pause();
  }
  if (!entered.empty()) return FakeCuda::get().error_in(function, entered.back());
  ++FakeCuda::get().without_device;
  return kInvalidContext;
}

int start(int* devices, char* why, std::size_t room) {
  static const int pid = ::getpid();
  if (pid != ::getpid()) {
    std::snprintf(why, room, "%s", horo::kForkedText);
    return kNotInitialized;
  }
  *devices = FakeCuda::get().devices();
  std::snprintf(why, room, "the fake does not start");
  return FakeCuda::get().error_in("start", -1);
}

// Processes have devices of their own, unless HORO_FAKE_CUDA_SHARED is set.
int identify(int device, unsigned char* uuid) {
  const int pid = std::getenv("HORO_FAKE_CUDA_SHARED") == nullptr ? ::getpid() : 0;
  std::memset(uuid, 0, 16);
  std::memcpy(uuid, &device, sizeof(device));
  std::memcpy(uuid + 8, &pid, sizeof(pid));
  return 0;
}

int enter(int device) {
  if (device < 0 || device >= FakeCuda::get().devices()) return kInvalidDevice;
  entered.push_back(device);
  return 0;
}

int leave() {
  if (entered.empty()) return kInvalidContext;
  entered.pop_back();
  return 0;
}

int stream_create(CudaStream* stream) {
  if (const int error = begin("stream_create")) return error;
  *stream = FakeCuda::get().make_stream(false, true);
  return 0;
}

int event_create(CudaEvent* event) {
  if (const int error = begin("event_create")) return error;
  *event = FakeCuda::get().make_event();
  return 0;
}

int event_create_timed(CudaEvent* event) {
  if (const int error = begin("event_create_timed")) return error;
  *event = FakeCuda::get().make_event(true);
  return 0;
}

int allocate(void** memory, std::size_t bytes) {
  if (const int error = begin("allocate_blocking")) return error;
  *memory = FakeCuda::get().allocate(bytes);
  if (*memory == nullptr) return kOutOfMemory;
  ++FakeCuda::get().allocated;
  return 0;
}

int free_memory(void* memory) {
  if (const int error = begin("free_blocking")) return error;
  FakeCuda::get().free(memory);
  --FakeCuda::get().allocated;
  return 0;
}

int copy(const char* function, void* to, const void* from, std::size_t bytes, CudaStream stream) {
  if (const int error = begin(function)) return error;
  FakeCuda::get().run_on(stream,
                         [=] { copy_bytes(FakeCuda::get().alias_of(to), FakeCuda::get().alias_of(from), bytes); });
  return 0;
}

// A kernel on a stream, with the addresses that streams use.
template <class Args>
void launch(const char* name, const Args& args, const horo::LaunchShape& shape, CudaStream stream) {
  ++FakeCuda::get().launches;
  FakeCuda::get().run_on(stream, [name = std::string(name), args = args, shape]() mutable {
    move_to_aliases(args);
    horo::test::host_kernel(name)(&args, shape);
  });
}

int reduce(const horo::DeviceReduction* reduction, CudaStream stream) {
  if (const int error = begin("reduce")) return error;
  horo::ReduceArgs args{};
  horo::LaunchShape shape{};
  if (!horo::prepare_reduce(*reduction, &args, &shape)) return kInvalidValue;
  if (args.steps > 0) launch(horo::reduce_kernel(reduction->dtype, reduction->op).data(), args, shape, stream);
  return 0;
}

int copy_rows(const horo::CopyRow* rows, std::size_t count, CudaStream stream) {
  if (const int error = begin("copy_rows")) return error;
  if (is_without("copy_rows")) return 0;
  while (count > 0) {
    horo::CopyArgs args{};
    horo::LaunchShape shape{};
    const std::size_t taken = horo::prepare_copy(rows, count, &args, &shape);
    if (args.rows > 0) launch(horo::kCopyKernel, args, shape, stream);
    rows += taken;
    count -= taken;
  }
  return 0;
}

constexpr CudaApi kApi{
    horo::kCudaApiVersion,
    start,
    [](int device, char* text, std::size_t room) {
      std::snprintf(text, room, "fake device %d", device);
      return 0;
    },
    identify,
    enter,
    leave,
    stream_create,
    [](CudaStream stream) {
      const int error = begin("stream_destroy");
      return error != 0 ? error : FakeCuda::get().destroy_stream(stream);
    },
    [](CudaStream stream, bool* is_capturing) {
      *is_capturing = FakeCuda::get().is_capturing(stream);
      return begin("stream_is_capturing");
    },
    event_create,
    event_create_timed,
    [](CudaEvent event) {
      const int error = begin("event_destroy");
      return error != 0 ? error : FakeCuda::get().destroy_event(event);
    },
    [](CudaEvent event, CudaStream stream) {
      const int error = begin("event_record");
      return error != 0 ? error : FakeCuda::get().record(event, stream);
    },
    [](CudaEvent event, bool* has_passed) {
      const int error = begin("event_query");
      return error != 0 ? error : FakeCuda::get().has_passed(event, has_passed);
    },
    [](CudaEvent from, CudaEvent to, float* ms, bool* are_complete) {
      const int error = begin("event_elapsed");
      return error != 0 ? error : FakeCuda::get().elapsed(from, to, ms, are_complete);
    },
    [](CudaEvent event) {
      const int error = begin("event_wait_blocking");
      return error != 0 ? error : FakeCuda::get().wait_on_host(event);
    },
    [](CudaStream stream, CudaEvent event) {
      const int error = begin("stream_wait");
      return error != 0 ? error : FakeCuda::get().wait_on_stream(stream, event);
    },
    allocate,
    free_memory,
    [](void* to, const void* from, std::size_t bytes, CudaStream stream) {
      return copy("copy_to_host", to, from, bytes, stream);
    },
    [](void* to, const void* from, std::size_t bytes, CudaStream stream) {
      return copy("copy_to_device", to, from, bytes, stream);
    },
    [](void* to, const void* from, std::size_t bytes, CudaStream stream) {
      return copy("copy_on_device", to, from, bytes, stream);
    },
    [](void* /*data*/, std::size_t /*bytes*/) {
      if (const int error = begin("pin")) return error;
      ++FakeCuda::get().pinned;
      ++FakeCuda::get().pins;
      return 0;
    },
    [](void* /*data*/) {
      if (const int error = begin("unpin")) return error;
      --FakeCuda::get().pinned;
      return 0;
    },
    [](int error, char* text, std::size_t room) {
      const char* const name = error == kOutOfMemory ? "CUDA_ERROR_OUT_OF_MEMORY, " : "";
      std::snprintf(text, room, "%serror %d of the fake", name, error);
    },
    [](char* why, std::size_t room) {
      std::snprintf(why, room, "the fake has no kernels");
      return begin("load_kernels");
    },
    reduce,
    copy_rows,
};

}  // namespace

namespace fake_cuda {

void run_long(CudaStream stream, std::function<void()> work) {
  FakeCuda::get().run_long_on(stream, std::move(work));
}
std::byte* alias_of(const void* address) {
  return FakeCuda::get().alias_of(address);
}
int current_device() {
  return entered.empty() ? -1 : entered.back();
}
bool is_without(const char* part) {
  return ::is_without(part);
}

}  // namespace fake_cuda

extern "C" {

__attribute__((visibility("default"))) const CudaApi* horo_cuda_api() {
  return &kApi;
}

void* fake_cuda_allocate(std::size_t bytes) {
  return FakeCuda::get().allocate(bytes);
}
void fake_cuda_free(void* memory) {
  FakeCuda::get().free(memory);
}
CudaStream fake_cuda_stream(bool is_capturing) {
  return FakeCuda::get().make_stream(is_capturing, false);
}
void fake_cuda_write(CudaStream stream, void* to, const void* from, std::size_t bytes) {
  const auto* first = static_cast<const std::byte*>(from);
  FakeCuda::get().run_on(stream, [to, data = std::vector<std::byte>(first, first + bytes)] {
    copy_bytes(FakeCuda::get().alias_of(to), data.data(), data.size());
  });
}
void fake_cuda_read(CudaStream stream, void* to, const void* from, std::size_t bytes) {
  FakeCuda::get().finish(stream);
  copy_bytes(to, FakeCuda::get().alias_of(from), bytes);
}
void fake_cuda_spend(CudaStream stream, std::int64_t us) {
  FakeCuda::get().run_long_on(stream, [us] {
    std::promise<void> never;
    never.get_future().wait_for(std::chrono::microseconds(us));
  });
}
void fake_cuda_block(CudaStream stream) {
  FakeCuda::get().block(stream);
}
void fake_cuda_counts(FakeCudaCounts* counts) {
  *counts = FakeCuda::get().counts();
}
void fake_cuda_reseed(std::uint64_t seed) {
  FakeCuda::get().reseed(seed);
}
}
