#include "horo/checkpoint/staging.h"

#include <sys/mman.h>

#include <stdexcept>
#include <utility>

#include "horo/base/forked.h"
#include "horo/base/say.h"

namespace horo::checkpoint {

constexpr std::size_t kHugePage = 2 << 20;

StagingMemory::~StagingMemory() {
  free();
}

void StagingMemory::reserve(std::uint64_t bytes) {
  if (bytes <= size_) return;
  free();
  const std::size_t size = (bytes + kHugePage - 1) / kHugePage * kHugePage;
  void* const memory = ::mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED)
    throw std::runtime_error(say("there is no memory for a copy of ", bytes, " bytes of the checkpoint"));
  ::madvise(memory, size, MADV_HUGEPAGE);  // fewer page faults; without it all works as well
  ::madvise(memory, size, MADV_DONTFORK);  // a child neither copies what a save writes to, nor has use for it
  generation_ = fork_generation();
  data_ = static_cast<std::byte*>(memory);
  size_ = size;
}

void StagingMemory::free() noexcept {
  std::byte* const data = std::exchange(data_, nullptr);
  const std::size_t size = std::exchange(size_, 0);
  if (data != nullptr && fork_generation() == generation_) ::munmap(data, size);
}

}  // namespace horo::checkpoint
