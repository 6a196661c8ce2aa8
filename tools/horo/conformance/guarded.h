// GuardedMemory: memory between guard bytes, which show whether code under test writes outside of its range.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace horo::tools {

using Bytes = std::vector<std::byte>;

class GuardedMemory {
 public:
  // `bytes` bytes, each of them `fill`, that start `offset` bytes after a multiple of kGuardBytes. At least kGuardBytes
  // of value `guard` lie before and after them.
  GuardedMemory(std::size_t bytes, std::size_t offset, std::byte guard, std::byte fill)
      : guard_(guard), memory_(bytes + offset + 3 * kGuardBytes, guard), bytes_(bytes) {
    const auto address = reinterpret_cast<std::uintptr_t>(memory_.data());
    begin_ = kGuardBytes + (kGuardBytes - address % kGuardBytes) % kGuardBytes + offset;
    std::fill_n(data(), bytes, fill);
  }
  // The same with a copy of `contents`.
  GuardedMemory(std::span<const std::byte> contents, std::size_t offset, std::byte guard)
      : GuardedMemory(contents.size(), offset, guard, guard) {
    std::copy(contents.begin(), contents.end(), data());
  }
  GuardedMemory(const GuardedMemory&) = delete;
  GuardedMemory& operator=(const GuardedMemory&) = delete;

  std::byte* data() { return memory_.data() + begin_; }
  Bytes contents() { return {data(), data() + bytes_}; }
  bool is_intact() const {
    const std::span<const std::byte> all(memory_), before = all.first(begin_), after = all.subspan(begin_ + bytes_);
    const auto is_guard = [this](std::byte byte) { return byte == guard_; };
    return std::all_of(before.begin(), before.end(), is_guard) && std::all_of(after.begin(), after.end(), is_guard);
  }

 private:
  static constexpr std::size_t kGuardBytes = 64;

  const std::byte guard_;
  Bytes memory_;
  const std::size_t bytes_;
  std::size_t begin_ = 0;
};

}  // namespace horo::tools
