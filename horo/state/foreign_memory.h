// The memory of another process of this host, read without its help: process_vm_readv of Linux.
//
// The kernel's Yama allows it to a parent or debugger alone, so the other process names the one process that may read
// it, and takes that back. Without Yama the processes of one user may read one another anyway.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace horo {

// The process with this pid and its descendants, and no other, may trace this one until the object ends: read its
// memory, and write it. What the program had allowed before is taken back, too, as the kernel cannot be asked for it.
class ReadableBy {
 public:
  explicit ReadableBy(std::int64_t pid);
  ~ReadableBy();
  ReadableBy(const ReadableBy&) = delete;
  ReadableBy& operator=(const ReadableBy&) = delete;
};

struct ForeignPart {
  std::uint64_t from = 0;  // address there
  std::byte* to = nullptr;
  std::size_t bytes = 0;
};
// False: the kernel does not allow it, or knows no such process.
bool read_memory(std::int64_t pid, std::span<const ForeignPart> parts);

}  // namespace horo
