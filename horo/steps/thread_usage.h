// ThreadUsage: what the kernel counts of one thread: its CPU time, the time in which it was ready to run and had no
// core, and its involuntary switches.
#pragma once

#include <cstdint>

#include "horo/steps/step_record.h"

namespace horo {

// Since a start that stays the same for a thread. kNotKnown: the kernel does not tell.
struct Usage {
  std::int64_t cpu_ns = kNotKnown;
  std::int64_t run_queue_ns = kNotKnown;
  std::int64_t switches = kNotKnown;
};

class ThreadUsage {
 public:
  ThreadUsage() = default;
  ~ThreadUsage() { close(); }
  ThreadUsage(const ThreadUsage&) = delete;
  ThreadUsage& operator=(const ThreadUsage&) = delete;

  // The figures of the calling thread from now on. Opens a descriptor.
  void begin() noexcept;
  // Three calls of the kernel, about two microseconds. The thread that has called begin().
  Usage now() const noexcept;

 private:
  void close() noexcept;

  int schedstat_ = -1;  // -1: the kernel has no such file
};

}  // namespace horo
