// A fake of libcuda.so.1 with the functions that the plug-in loads, so that the plug-in itself runs in tests: one
// device, whose memory is the host's and whose streams are done at once. Kernels are those of host_kernels.h, whatever
// the image has. FAKE_DRIVER_VERSION is the CUDA version.

#include <cstdarg>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <set>
#include <string>
#include <utility>

#include "tests/ring/cuda/host_kernels.h"

namespace {

constexpr int kInvalidContext = 201, kInvalidHandle = 400;

thread_local int contexts = 0;  // that are pushed
int the_context = 0, the_stream = 0, the_event = 0, the_module = 0;

int in_context() {
  return contexts > 0 ? 0 : kInvalidContext;
}
int is_stream(const void* stream) {
  return stream == nullptr || stream == &the_stream ? in_context() : kInvalidHandle;
}
int is_event(const void* event) {
  return event == &the_event ? in_context() : kInvalidHandle;
}

}  // namespace

#pragma GCC visibility push(default)
extern "C" {

int cuInit(unsigned flags) {
  return flags == 0 ? 0 : 1;
}
int cuDriverGetVersion(int* version) {
  const char* given = std::getenv("FAKE_DRIVER_VERSION");
  *version = given == nullptr ? 13'000 : std::atoi(given);
  return 0;
}
int cuDeviceGetCount(int* count) {
  *count = 1;
  return 0;
}
int cuDeviceGet(int* device, int number) {
  *device = 70 + number;
  return number == 0 ? 0 : 101;
}
int cuDeviceGetName(char* name, int room, int device) {
  std::snprintf(name, static_cast<std::size_t>(room), "Fake %d", device);
  return 0;
}
int cuDeviceGetUuid(unsigned char* uuid, int device) {
  std::memset(uuid, device, 16);
  return 0;
}
int cuDevicePrimaryCtxRetain(void** context, int device) {
  *context = &the_context;
  return device == 70 ? 0 : 101;
}
int cuCtxPushCurrent_v2(void* context) {
  ++contexts;
  return context == &the_context ? 0 : kInvalidContext;
}
int cuCtxPopCurrent_v2(void** context) {
  *context = &the_context;
  return contexts-- > 0 ? 0 : kInvalidContext;
}
int cuCtxGetStreamPriorityRange(int* least, int* greatest) {
  *least = 0;
  *greatest = -5;
  return in_context();
}
int cuStreamCreateWithPriority(void** stream, unsigned flags, int priority) {
  *stream = &the_stream;
  return flags == 1 && priority == -5 ? in_context() : 1;
}
int cuStreamDestroy_v2(void* stream) {
  return is_stream(stream);
}
int cuStreamIsCapturing(void* stream, int* status) {
  *status = 0;
  return is_stream(stream);
}
int cuEventCreate(void** event, unsigned flags) {
  *event = &the_event;
  return flags == 3 || flags == 1 ? in_context() : 1;
}
int cuEventDestroy_v2(void* event) {
  return is_event(event);
}
int cuEventRecord(void* event, void* stream) {
  return is_event(event) != 0 ? is_event(event) : is_stream(stream);
}
int cuEventQuery(void* event) {
  return is_event(event);
}
int cuEventElapsedTime(float* ms, void* from, void* to) {
  *ms = 0;
  return is_event(from) != 0 ? is_event(from) : is_event(to);
}
int cuThreadExchangeStreamCaptureMode(int* mode) {
  static thread_local int now = 0;
  std::swap(now, *mode);
  return in_context();
}
int cuEventSynchronize(void* event) {
  return is_event(event);
}
int cuStreamWaitEvent(void* stream, void* event, unsigned flags) {
  return flags != 0 ? 1 : is_event(event) != 0 ? is_event(event) : is_stream(stream);
}
int cuMemAlloc_v2(unsigned long long* memory, std::size_t bytes) {
  *memory = reinterpret_cast<unsigned long long>(std::malloc(bytes));
  return in_context();
}
int cuMemFree_v2(unsigned long long memory) {
  std::free(reinterpret_cast<void*>(memory));
  return in_context();
}
int cuMemcpyAsync(unsigned long long to, unsigned long long from, std::size_t bytes, void* stream) {
  std::memcpy(reinterpret_cast<void*>(to), reinterpret_cast<const void*>(from), bytes);
  return is_stream(stream);
}
int cuMemcpyDtoHAsync_v2(void* to, unsigned long long from, std::size_t bytes, void* stream) {
  std::memcpy(to, reinterpret_cast<const void*>(from), bytes);
  return is_stream(stream);
}
int cuMemcpyHtoDAsync_v2(unsigned long long to, const void* from, std::size_t bytes, void* stream) {
  std::memcpy(reinterpret_cast<void*>(to), from, bytes);
  return is_stream(stream);
}
int cuMemHostRegister_v2(void* data, std::size_t bytes, unsigned flags) {
  return data != nullptr && bytes > 0 && flags == 1 ? in_context() : 1;
}
int cuMemHostUnregister(void* data) {
  return data != nullptr ? in_context() : 1;
}
int cuModuleLoadData(void** module, const void* image) {
  constexpr unsigned kImage = 0xba55ed50;  // what an image of nvcc begins with
  *module = &the_module;
  return std::memcmp(image, &kImage, sizeof(kImage)) == 0 ? in_context() : 200;
}
int cuModuleGetFunction(void** function, void* module, const char* name) {
  static std::set<std::string> names;  // a function is its name
  static std::mutex mutex;
  const std::lock_guard lock(mutex);
  if (module != &the_module || horo::test::host_kernel(name) == nullptr) return 500;
  *function = const_cast<std::string*>(&*names.insert(name).first);
  return in_context();
}
// It has eleven parameters, which the callers on Linux pass as if they were variable.
int cuLaunchKernel(void* function, ...) {
  std::va_list rest;
  va_start(rest, function);
  unsigned shape[7];  // blocks and threads in three dimensions, bytes of shared memory
  for (unsigned& each : shape) each = va_arg(rest, unsigned);
  void* const stream = va_arg(rest, void*);
  void** const parameters = va_arg(rest, void**);
  void** const extra = va_arg(rest, void**);
  va_end(rest);
  if (shape[1] != 1 || shape[2] != 1 || shape[4] != 1 || shape[5] != 1 || extra != nullptr) return 1;
  if (shape[0] == 0 || shape[3] == 0 || shape[3] > 128 || shape[6] > 48 * 1024) return 1;
  if (const int error = is_stream(stream)) return error;
  const std::string& name = *static_cast<const std::string*>(function);
  horo::test::host_kernel(name)(parameters[0], {shape[0], shape[3], shape[6]});
  return 0;
}
int cuGetErrorName(int error, const char** name) {
  *name = error == kInvalidContext ? "CUDA_ERROR_INVALID_CONTEXT" : "CUDA_ERROR_OF_THE_FAKE";
  return 0;
}
int cuGetErrorString(int, const char** text) {
  *text = "of the fake";
  return 0;
}
}
#pragma GCC visibility pop
