#include "ring/group/host_memory.h"

#include <sys/mman.h>

#include <algorithm>
#include <new>

#include "ring/shm/segment.h"

namespace horo {
namespace {

constexpr std::size_t kAlignment = 64;
constexpr std::size_t kPageBytes = 4096, kApartBytes = 64 << 10;

std::size_t alignment_of(std::size_t bytes) {
  if (bytes >= kHugePageBytes) return kHugePageBytes;
  return bytes >= kApartBytes ? kPageBytes : kAlignment;
}

}  // namespace

Allocation allocate_here(std::size_t bytes) {
  const std::align_val_t alignment{alignment_of(bytes)};
  const std::size_t room = bytes >= kApartBytes ? (bytes + kPageBytes - 1) / kPageBytes * kPageBytes : bytes;
  auto* data = static_cast<std::byte*>(::operator new(std::max<std::size_t>(room, 1), alignment));
  if (bytes >= kHugePageBytes) ::madvise(data, bytes, MADV_HUGEPAGE);
  return {{data, [alignment](std::byte* memory) { ::operator delete(memory, alignment); }}, bytes};
}

}  // namespace horo
