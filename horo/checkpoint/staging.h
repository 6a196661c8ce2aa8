// Memory for the bytes of a save between their copy and the end of their writing. It is kept from save to save: memory
// that was touched before takes a copy at 2.5 times the rate of new memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace horo::checkpoint {

class StagingMemory {
 public:
  StagingMemory() = default;
  ~StagingMemory();
  StagingMemory(const StagingMemory&) = delete;
  StagingMemory& operator=(const StagingMemory&) = delete;

  // At least so many bytes; what was there is lost if it grows. Throws std::runtime_error: there is no such memory.
  void reserve(std::uint64_t bytes);
  std::span<std::byte> bytes() const { return {data_, size_}; }

 private:
  void free() noexcept;
  std::byte* data_ = nullptr;
  std::size_t size_ = 0;
  std::uint32_t generation_ = 0;  // fork_generation(); a forked child does not have the memory
};

}  // namespace horo::checkpoint
