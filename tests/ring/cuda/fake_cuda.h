// A fake of the CUDA plug-in: the same table, over devices that are threads of this process. Its streams are late: what
// is put on them runs long after the call, in any order that events allow, so a missing wait gives wrong values. Its
// memory is guarded: only streams can read or write it.
//
// HORO_FAKE_CUDA_DEVICES (default 8) and HORO_FAKE_CUDA_SEED (default 1) are read at the start, HORO_FAKE_CUDA_FAIL at
// each call: "copy_to_host" lets all calls of that function fail, "copy_to_host:3" the third one, "copy_to_host@1"
// those of device 1, "copy_to_host@1:3" the third one there since it was set. Processes have devices of their own,
// unless HORO_FAKE_CUDA_SHARED is set when a device is identified. With HORO_FAKE_CUDA_FAIL=load_kernels there are no
// kernels.
//
// HORO_FAKE_CUDA_WITHOUT lets one part do nothing: "stream_wait" of horo's own streams, "callers' stream_wait",
// "event_query" and "event_wait" (events pass at once), "copy_rows", "comm_error" (a call of NCCL is never in
// progress), "comm_abort" or "comm_finalize". A test that passes without the part does not see that horo has left the
// call out: tools/gpu_proof parts.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>

#include "ring/cuda/cuda_api.h"

// For the fake of NCCL, which is a part of this library.
namespace fake_cuda {

// Puts work on the stream that may take for ever.
void run_long(horo::CudaStream stream, std::function<void()> work);
// Where a stream reads or writes this address.
std::byte* alias_of(const void* address);
// -1: none.
int current_device();
// Whether HORO_FAKE_CUDA_WITHOUT has this name.
bool is_without(const char* part);

}  // namespace fake_cuda

#pragma GCC visibility push(default)
extern "C" {

// Memory of a device, or null. Its address faults when the processor uses it.
void* fake_cuda_allocate(std::size_t bytes);
void fake_cuda_free(void* memory);
// A stream of a caller.
horo::CudaStream fake_cuda_stream(bool is_capturing);
// A kernel on a stream: writes these bytes, which are copied at the call.
void fake_cuda_write(horo::CudaStream stream, void* to, const void* from, std::size_t bytes);
// Waits until everything on the stream has ended, and then reads.
void fake_cuda_read(horo::CudaStream stream, void* to, const void* from, std::size_t bytes);
// A kernel on a stream that takes so long, beside those of other streams.
void fake_cuda_spend(horo::CudaStream stream, std::int64_t us);
// What is put on the stream from now on is never run.
void fake_cuda_block(horo::CudaStream stream);
// Objects that exist, calls of pin(), calls that were made without a current device, kernels, and
// waits of the host for an event.
struct FakeCudaCounts {
  std::int64_t streams, events, pinned, pins, without_device, allocated, launches, host_waits;
};
void fake_cuda_counts(FakeCudaCounts* counts);
// The order of streams from now on.
void fake_cuda_reseed(std::uint64_t seed);
}
#pragma GCC visibility pop
