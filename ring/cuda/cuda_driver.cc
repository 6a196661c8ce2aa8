#include "ring/cuda/cuda_driver.h"

#include <dlfcn.h>

#include <cstdio>

#include "horo/base/library_functions.h"
namespace horo {

const char* find_functions(void* library, CudaDriver& driver) {
  LibraryFunctions functions(library);
  functions.find(driver.init, "cuInit");
  functions.find(driver.version, "cuDriverGetVersion");
  functions.find(driver.count, "cuDeviceGetCount");
  functions.find(driver.get, "cuDeviceGet");
  functions.find(driver.name, "cuDeviceGetName");
  functions.find(driver.uuid, "cuDeviceGetUuid");
  functions.find(driver.retain, "cuDevicePrimaryCtxRetain");
  functions.find(driver.push, "cuCtxPushCurrent_v2");
  functions.find(driver.pop, "cuCtxPopCurrent_v2");
  functions.find(driver.priorities, "cuCtxGetStreamPriorityRange");
  functions.find(driver.stream_create, "cuStreamCreateWithPriority");
  functions.find(driver.stream_destroy, "cuStreamDestroy_v2");
  functions.find(driver.stream_is_capturing, "cuStreamIsCapturing");
  functions.find(driver.event_create, "cuEventCreate");
  functions.find(driver.event_destroy, "cuEventDestroy_v2");
  functions.find(driver.event_record, "cuEventRecord");
  functions.find(driver.event_query, "cuEventQuery");
  functions.find(driver.event_elapsed, "cuEventElapsedTime");
  functions.find(driver.event_synchronize, "cuEventSynchronize");
  functions.find(driver.stream_wait, "cuStreamWaitEvent");
  functions.find(driver.allocate, "cuMemAlloc_v2");
  functions.find(driver.free, "cuMemFree_v2");
  functions.find(driver.capture_mode, "cuThreadExchangeStreamCaptureMode");
  functions.find(driver.to_host, "cuMemcpyDtoHAsync_v2");
  functions.find(driver.to_device, "cuMemcpyHtoDAsync_v2");
  functions.find(driver.on_device, "cuMemcpyAsync");
  functions.find(driver.pin, "cuMemHostRegister_v2");
  functions.find(driver.unpin, "cuMemHostUnregister");
  functions.find(driver.load_module, "cuModuleLoadData");
  functions.find(driver.find_kernel, "cuModuleGetFunction");
  functions.find(driver.launch, "cuLaunchKernel");
  functions.find(driver.error_name, "cuGetErrorName");
  functions.find(driver.error_string, "cuGetErrorString");
  return functions.missing();
}

void cuda_error_text(const CudaDriver& driver, int error, char* text, std::size_t room) {
  const char* name = nullptr;
  const char* words = nullptr;
  if (driver.error_name == nullptr || driver.error_name(error, &name) != 0 || name == nullptr) name = "an error";
  if (driver.error_string == nullptr || driver.error_string(error, &words) != 0 || words == nullptr) words = "unknown";
  std::snprintf(text, room, "%s (%d): %s", name, error, words);
}

}  // namespace horo
