// Which members of a group run on cores behind another cache, and copies that bypass the caches for them.
//
// A line that a core has written is in the caches of that core. A core that shares a cache with it reads the line in 10
// to 40 ns. A core behind another cache (another core complex of the chip, another socket) takes 130 ns and more, which
// is longer than from memory. There, stores that bypass the caches are faster: the reader finds the data in memory.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "horo/base/time.h"

namespace horo {

// Cache lines in shared memory: one core writes them, another core reads them and measures the time. Zeros at first.
class CacheLineProbe {
 public:
  // Writes the lines; `value` differs from one probe to the next.
  void write(std::uint64_t value) noexcept;
  // The median time of a load, the clock's own time included; zero (unknown) if a line does not hold `value`.
  Duration read(std::uint64_t value) const noexcept;

 private:
  static constexpr std::size_t kLines = 5;
  static constexpr std::size_t kDistance = 1024;  // of 256 bytes, the hardware prefetches half of the lines
  struct alignas(kDistance) Line {
    std::atomic<std::uint64_t> value;
  };
  std::array<Line, kLines> lines_;
};

// The members behind another cache, by one member's measurements. One thread.
class CacheDistances {
 public:
  CacheDistances(int size, int index) : size_(size), index_(index), remote_(static_cast<std::size_t>(size), 0) {}

  // "on": all members are remote; "off": none is; both without measurement. "auto": measure.
  void set(const std::string& setting);

  bool is_remote(int member) const { return remote_[static_cast<std::size_t>(member)] != 0; }
  bool any_remote() const { return remote_count_ > 0; }

  // To be called once for each collective that passes data on. Returns whether the members write and read probe lines
  // in it: in each of a MiB and more, and in every 16th of the others. Equal on all members.
  bool is_probe_due(std::size_t bytes);
  // The member whose lines this one reads. It changes from probe to probe; no two members have the same one.
  int next_to_probe() const;
  void record(int member, Duration line);

 private:
  const int size_, index_;
  std::vector<char> remote_;  // by member
  int remote_count_ = 0;
  bool is_given_ = false;  // by the setting
  std::uint64_t probes_ = 0, short_collectives_ = 0;
};

}  // namespace horo
