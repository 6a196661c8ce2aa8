// What the machine can do at this moment, measured by threads of this process.
#pragma once

#include <array>
#include <cstddef>

#include "tools/horo/machine/descriptor.h"

namespace horo::tools {

// Seconds for an all_reduce of float32 among ranks whose memory all see, at the least: the larger of one cache line's
// way from one core to another, and of the time that as many threads as there are cores take to read one array of
// `bytes` for each rank (at most) and to write the sum to all of them: a = b = a + b for two. From CONTEST_ALONE_BYTES
// on they are rewritten before, as the contestants rewrite their inputs, and below that they lie in the caches.
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

// Two ends of one bare TCP connection of loopback; one for all rounds and sizes, as the contestants have
// theirs: a new connection takes a while to become as fast as it can.
class SocketLimit {
 public:
  SocketLimit();
  // Seconds in which two threads exchange so many bytes over it, both ways at once.
  double measure(std::size_t bytes);

 private:
  const std::array<Descriptor, 2> ends_;
};

}  // namespace horo::tools
