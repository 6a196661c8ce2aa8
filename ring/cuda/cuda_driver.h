// The functions of NVIDIA's driver, libcuda.so.1, that the plug-in calls. The few declarations of the driver's stable
// interface that are needed are written out, so that the plug-in is built where no CUDA is installed.
#pragma once

#include <cstddef>

namespace horo {

using CudaAddress = unsigned long long;  // CUdeviceptr
using CudaContext = void*;               // CUcontext
using CudaModule = void*;                // CUmodule
using CudaKernel = void*;                // CUfunction

struct CudaDriver {
  int (*init)(unsigned);
  int (*version)(int*);
  int (*count)(int*);
  int (*get)(int*, int);
  int (*name)(char*, int, int);
  int (*uuid)(unsigned char*, int);
  int (*retain)(CudaContext*, int);
  int (*push)(CudaContext);
  int (*pop)(CudaContext*);
  int (*priorities)(int*, int*);
  int (*stream_create)(void**, unsigned, int);
  int (*stream_destroy)(void*);
  int (*stream_is_capturing)(void*, int*);
  int (*event_create)(void**, unsigned);
  int (*event_destroy)(void*);
  int (*event_record)(void*, void*);
  int (*event_query)(void*);
  int (*event_elapsed)(float*, void*, void*);
  int (*event_synchronize)(void*);
  int (*stream_wait)(void*, void*, unsigned);
  int (*allocate)(CudaAddress*, std::size_t);
  int (*free)(CudaAddress);
  int (*capture_mode)(int*);
  int (*to_host)(void*, CudaAddress, std::size_t, void*);
  int (*to_device)(CudaAddress, const void*, std::size_t, void*);
  int (*on_device)(CudaAddress, CudaAddress, std::size_t, void*);
  int (*pin)(void*, std::size_t, unsigned);
  int (*unpin)(void*);
  int (*load_module)(CudaModule*, const void*);
  int (*find_kernel)(CudaKernel*, CudaModule, const char*);
  int (*launch)(CudaKernel, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void*, void**,
                void**);
  int (*error_name)(int, const char**);
  int (*error_string)(int, const char**);
};

// Fills the table from a library that is loaded. Returns the name of the first function that is missing, or null.
const char* find_functions(void* library, CudaDriver& driver);
// "CUDA_ERROR_NO_DEVICE (100): no CUDA-capable device is detected".
void cuda_error_text(const CudaDriver& driver, int error, char* text, std::size_t room);

}  // namespace horo
