// How far away another core's caches are, and copies that spare the other one the way there.
//
// What a core has written lies in its caches. To read it there takes another core of the same cache 10 to 40 ns a line,
// and one behind another cache (another complex of cores on one chip, another socket) 130 and more: longer than from
// memory, where whatever was written past the caches is found.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

#include "horo/base/time.h"

namespace horo {

// Lines that one core writes and another reads, in memory that both see. Zeros at first.
class LineProbe {
 public:
  // Longer than that is far: long tensors passed on through the caches took 1.5 ms where a line took 30 ns and 3.5
  // where it took 135, past them 3.0 and 1.9.
  static constexpr std::chrono::nanoseconds kFar{80};

  void write(std::uint64_t value) noexcept;
  // How long most of the lines took, each with a look at the clock; zero, nothing is known, unless all have that value.
  Duration read(std::uint64_t value) const noexcept;

 private:
  static constexpr std::size_t kLines = 5;
  static constexpr std::size_t kApart = 1024;  // bytes: so that few come along with another
  struct alignas(kApart) Line {
    std::atomic<std::uint64_t> value;
  };
  std::array<Line, kLines> lines_;
};

// memcpy() of many bytes past the caches, so that who reads them finds them in memory. What this thread stores later is
// seen later. A plain copy where the processor has no such stores.
void copy_past_caches(std::byte* to, const std::byte* from, std::size_t bytes) noexcept;

}  // namespace horo
