// Lower bounds of the time of an all_reduce on this machine, measured by threads of this process.
#pragma once

#include <array>
#include <cstddef>

#include "tools/horo/machine/descriptor.h"

namespace horo::bench {

// The bound in seconds for an all_reduce of float32 among ranks that share memory: the larger of the latency of one
// cache line between two cores, and of the time in which one thread per core reads one array of `bytes` for each rank
// and writes the sum to all of them (a = b = a + b for two). From HARNESS_TIMED_ALONE_BYTES on the arrays are rewritten
// before each sweep, as the contestants rewrite their inputs; smaller arrays stay in the caches.
class MemoryLimit {
 public:
  MemoryLimit(std::size_t bytes, int ranks);
  ~MemoryLimit();
  MemoryLimit(const MemoryLimit&) = delete;
  MemoryLimit& operator=(const MemoryLimit&) = delete;
  double measure();

 private:
  const std::size_t count_;  // floats of an array
  const int arrays_;
  float* memory_ = nullptr;
};

// The two ends of one TCP connection over loopback. It serves all rounds and sizes, as the connections of the
// contestants do: the congestion window of a new connection is small.
class SocketLimit {
 public:
  SocketLimit();
  // Seconds in which two threads exchange `bytes` bytes over it, in both directions at once.
  double measure(std::size_t bytes);

 private:
  const std::array<tools::Descriptor, 2> ends_;
};

}  // namespace horo::bench
