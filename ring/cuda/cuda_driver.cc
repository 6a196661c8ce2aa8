#include "ring/cuda/cuda_driver.h"

#include <dlfcn.h>

#include <cstdio>
#include <type_traits>

namespace horo {

const char* find_functions(void* library, CudaDriver& driver) {
  const char* missing = nullptr;
  const auto find = [&](auto& function, const char* name) {
    void* const found = ::dlsym(library, name);
    if (found == nullptr && missing == nullptr) missing = name;
    function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(found);
  };
  find(driver.init, "cuInit");
  find(driver.version, "cuDriverGetVersion");
  find(driver.count, "cuDeviceGetCount");
  find(driver.get, "cuDeviceGet");
  find(driver.name, "cuDeviceGetName");
  find(driver.uuid, "cuDeviceGetUuid");
  find(driver.retain, "cuDevicePrimaryCtxRetain");
  find(driver.push, "cuCtxPushCurrent_v2");
  find(driver.pop, "cuCtxPopCurrent_v2");
  find(driver.priorities, "cuCtxGetStreamPriorityRange");
  find(driver.stream_create, "cuStreamCreateWithPriority");
  find(driver.stream_destroy, "cuStreamDestroy_v2");
  find(driver.stream_is_capturing, "cuStreamIsCapturing");
  find(driver.event_create, "cuEventCreate");
  find(driver.event_destroy, "cuEventDestroy_v2");
  find(driver.event_record, "cuEventRecord");
  find(driver.event_query, "cuEventQuery");
  find(driver.event_synchronize, "cuEventSynchronize");
  find(driver.stream_wait, "cuStreamWaitEvent");
  find(driver.allocate, "cuMemAlloc_v2");
  find(driver.free, "cuMemFree_v2");
  find(driver.capture_mode, "cuThreadExchangeStreamCaptureMode");
  find(driver.to_host, "cuMemcpyDtoHAsync_v2");
  find(driver.to_device, "cuMemcpyHtoDAsync_v2");
  find(driver.on_device, "cuMemcpyAsync");
  find(driver.pin, "cuMemHostRegister_v2");
  find(driver.unpin, "cuMemHostUnregister");
  find(driver.load_module, "cuModuleLoadData");
  find(driver.find_kernel, "cuModuleGetFunction");
  find(driver.launch, "cuLaunchKernel");
  find(driver.error_name, "cuGetErrorName");
  find(driver.error_string, "cuGetErrorString");
  return missing;
}

void cuda_error_text(const CudaDriver& driver, int error, char* text, std::size_t room) {
  const char* name = nullptr;
  const char* words = nullptr;
  if (driver.error_name == nullptr || driver.error_name(error, &name) != 0 || name == nullptr) name = "an error";
  if (driver.error_string == nullptr || driver.error_string(error, &words) != 0 || words == nullptr) words = "unknown";
  std::snprintf(text, room, "%s (%d): %s", name, error, words);
}

}  // namespace horo
