// Fail points: named places in the product at which a test may end or stop its own process, and a benchmark may take
// the time. In production no hook is set, and a fail point costs one load.
#pragma once

#include <atomic>

namespace horo {

// Called with the name of each place that a thread reaches. Set once, before any session; null: none.
using FailPointHook = void (*)(const char* name) noexcept;
inline std::atomic<FailPointHook> fail_point_hook = nullptr;  // orders nothing

inline void fail_point(const char* name) noexcept {
  if (const FailPointHook hook = fail_point_hook.load(std::memory_order_relaxed)) hook(name);
}

}  // namespace horo
