// libhoro_cuda.so: the table over the driver's own library, libcuda.so.1, which comes with the driver and is loaded
// here at run time, and over the kernels, which the plug-in brings along.

#include <dlfcn.h>
#include <unistd.h>

#include <array>
#include <cstdio>
#include <mutex>
#include <vector>

#include "ring/cuda/cuda_api.h"
#include "ring/cuda/cuda_driver.h"
#include "ring/cuda/device_kernels.h"

namespace {

using horo::CudaApi;
using horo::CudaEvent;
using horo::CudaStream;

using Address = horo::CudaAddress;
using Context = horo::CudaContext;

constexpr int kNotFound = 500;        // CUDA_ERROR_NOT_FOUND
constexpr int kNotInitialized = 3;    // CUDA_ERROR_NOT_INITIALIZED
constexpr int kNoDevice = 100;        // CUDA_ERROR_NO_DEVICE
constexpr int kInvalidDevice = 101;   // CUDA_ERROR_INVALID_DEVICE
constexpr int kInvalidContext = 201;  // CUDA_ERROR_INVALID_CONTEXT
constexpr int kNotReady = 600;        // CUDA_ERROR_NOT_READY
constexpr int kCaptureImplicit =
    906;                              // CUDA_ERROR_STREAM_CAPTURE_IMPLICIT: of the default stream, while others capture
constexpr int kRelaxed = 2;           // CU_STREAM_CAPTURE_MODE_RELAXED
constexpr int kLeastDriver = 11'000;  // CUDA 11.0
constexpr int kMostDevices = 64;
constexpr unsigned kNonBlocking = 1;    // CU_STREAM_NON_BLOCKING
constexpr unsigned kBlockingSync = 1;   // CU_EVENT_BLOCKING_SYNC
constexpr unsigned kDisableTiming = 2;  // CU_EVENT_DISABLE_TIMING
constexpr unsigned kPortable = 1;       // CU_MEMHOSTREGISTER_PORTABLE

horo::CudaDriver driver;
std::mutex start_mutex;  // guards the next four
int start_pid = 0;       // of the process that started the driver
int start_error = -1;    // -1: not started
int device_count = 0;
std::array<char, 512> start_text{};
std::array<Context, kMostDevices> contexts{};  // by device, set when the device is first entered
std::mutex contexts_mutex;
std::array<horo::DeviceKernels, kMostDevices> kernels;

struct Entered {
  int device;
  int mode_before;  // of capture
};
thread_local std::vector<Entered> entered;

void error_text(int error, char* text, std::size_t room) {
  horo::cuda_error_text(driver, error, text, room);
}

template <class... Parts>
int fail_start(int error, const char* format, Parts... parts) {
  std::snprintf(start_text.data(), start_text.size(), format, parts...);
  return error;
}

int start_driver() {
  void* const library = ::dlopen("libcuda.so.1", RTLD_NOW | RTLD_GLOBAL);
  if (library == nullptr) {
    return fail_start(kNoDevice,
                      "the NVIDIA driver's libcuda.so.1 cannot be loaded (%s): install the driver, or start "
                      "the container with the GPUs",
                      ::dlerror());
  }
  if (const char* missing = horo::find_functions(library, driver)) {
    return fail_start(kNotFound, "the NVIDIA driver has no %s: it is too old for horo, which needs CUDA 11.0 or newer",
                      missing);
  }
  int error = driver.init(0);
  std::array<char, 300> text{};
  if (error != 0) {
    error_text(error, text.data(), text.size());
    return fail_start(error, "the NVIDIA driver does not start: cuInit: %s", text.data());
  }
  int version = 0;
  driver.version(&version);
  if (version < kLeastDriver) {
    return fail_start(kNotFound, "the NVIDIA driver is for CUDA %d.%d: horo needs CUDA 11.0 or newer", version / 1000,
                      version % 1000 / 10);
  }
  error = driver.count(&device_count);
  if (error == 0) return 0;
  error_text(error, text.data(), text.size());
  return fail_start(error, "the NVIDIA driver does not count its devices: %s", text.data());
}

int start(int* devices, char* why, std::size_t room) {
  const std::lock_guard lock(start_mutex);
  if (start_error == -1) {
    start_pid = ::getpid();
    start_error = start_driver();
  }
  if (start_error == 0 && start_pid != ::getpid()) {
    std::snprintf(why, room, "%s", horo::kForkedText);
    return kNotInitialized;
  }
  *devices = device_count < kMostDevices ? device_count : kMostDevices;
  std::snprintf(why, room, "%s", start_text.data());
  return start_error;
}

int describe(int device, char* text, std::size_t room) {
  int handle = 0;
  int version = 0;
  std::array<char, 200> name{};
  int error = driver.get(&handle, device);
  if (error == 0) error = driver.name(name.data(), static_cast<int>(name.size()), handle);
  if (error == 0) error = driver.version(&version);
  std::snprintf(text, room, "%s, CUDA %d.%d", name.data(), version / 1000, version % 1000 / 10);
  return error;
}

int identify(int device, unsigned char* uuid) {
  int handle = 0;
  const int error = driver.get(&handle, device);
  return error != 0 ? error : driver.uuid(uuid, handle);
}

// The primary context is retained until the process ends: another library that uses the device shares it.
int enter(int device) {
  if (device < 0 || device >= kMostDevices) return kInvalidDevice;
  Context context = nullptr;
  {
    const std::lock_guard lock(contexts_mutex);
    Context& kept = contexts[static_cast<std::size_t>(device)];
    if (kept == nullptr) {
      int handle = 0;
      if (const int error = driver.get(&handle, device)) return error;
      if (const int error = driver.retain(&kept, handle)) return error;
    }
    context = kept;
  }
  if (const int error = driver.push(context)) return error;
  int mode = kRelaxed;
  if (const int error = driver.capture_mode(&mode)) {
    driver.pop(&context);
    return error;
  }
  entered.push_back({device, mode});
  return 0;
}

int leave() {
  if (!entered.empty()) {
    driver.capture_mode(&entered.back().mode_before);
    entered.pop_back();
  }
  Context before = nullptr;
  return driver.pop(&before);
}

int stream_create(CudaStream* stream) {
  int least = 0, greatest = 0;
  if (const int error = driver.priorities(&least, &greatest)) return error;
  return driver.stream_create(stream, kNonBlocking, greatest);
}

int stream_is_capturing(CudaStream stream, bool* is_capturing) {
  int status = 0;  // 0: CU_STREAM_CAPTURE_STATUS_NONE
  const int error = driver.stream_is_capturing(stream, &status);
  *is_capturing = status != 0 || error == kCaptureImplicit;
  return *is_capturing ? 0 : error;
}

int event_create(CudaEvent* event) {
  return driver.event_create(event, kDisableTiming | kBlockingSync);
}

int event_elapsed(CudaEvent from, CudaEvent to, float* ms, bool* are_complete) {
  const int error = driver.event_elapsed(ms, from, to);
  *are_complete = error == 0;
  return error == kNotReady ? 0 : error;
}

int event_query(CudaEvent event, bool* is_complete) {
  const int error = driver.event_query(event);
  *is_complete = error == 0;
  return error == kNotReady ? 0 : error;
}

int copy_to_host(void* to, const void* from, std::size_t bytes, CudaStream stream) {
  return driver.to_host(to, reinterpret_cast<Address>(from), bytes, stream);
}

int copy_to_device(void* to, const void* from, std::size_t bytes, CudaStream stream) {
  return driver.to_device(reinterpret_cast<Address>(to), from, bytes, stream);
}

int copy_on_device(void* to, const void* from, std::size_t bytes, CudaStream stream) {
  return driver.on_device(reinterpret_cast<Address>(to), reinterpret_cast<Address>(from), bytes, stream);
}

int allocate(void** memory, std::size_t bytes) {
  Address address = 0;
  const int error = driver.allocate(&address, bytes);
  *memory = reinterpret_cast<void*>(address);
  return error;
}

int pin(void* data, std::size_t bytes) {
  return driver.pin(data, bytes, kPortable);
}

// Of the current device; null: there is none.
horo::DeviceKernels* current_kernels() {
  return entered.empty() ? nullptr : &kernels[static_cast<std::size_t>(entered.back().device)];
}

int load_kernels(char* why, std::size_t room) {
  horo::DeviceKernels* const current = current_kernels();
  std::snprintf(why, room, "no device is the current one");
  return current == nullptr ? kInvalidContext : current->load(driver, why, room);
}

int reduce(const horo::DeviceReduction* reduction, CudaStream stream) {
  horo::DeviceKernels* const current = current_kernels();
  return current == nullptr ? kInvalidContext : current->reduce(driver, *reduction, stream);
}

int copy_rows(const horo::CopyRow* rows, std::size_t count, CudaStream stream) {
  horo::DeviceKernels* const current = current_kernels();
  return current == nullptr ? kInvalidContext : current->copy_rows(driver, {rows, count}, stream);
}

constexpr CudaApi kApi{
    horo::kCudaApiVersion,
    start,
    describe,
    identify,
    enter,
    leave,
    stream_create,
    [](CudaStream stream) { return driver.stream_destroy(stream); },
    stream_is_capturing,
    event_create,
    [](CudaEvent* event) { return driver.event_create(event, kBlockingSync); },
    [](CudaEvent event) { return driver.event_destroy(event); },
    [](CudaEvent event, CudaStream stream) { return driver.event_record(event, stream); },
    event_query,
    event_elapsed,
    [](CudaEvent event) { return driver.event_synchronize(event); },
    [](CudaStream stream, CudaEvent event) { return driver.stream_wait(stream, event, 0); },
    allocate,
    [](void* memory) { return driver.free(reinterpret_cast<Address>(memory)); },
    copy_to_host,
    copy_to_device,
    copy_on_device,
    pin,
    [](void* data) { return driver.unpin(data); },
    error_text,
    load_kernels,
    reduce,
    copy_rows,
};

}  // namespace

extern "C" __attribute__((visibility("default"))) const CudaApi* horo_cuda_api() {
  return &kApi;
}
