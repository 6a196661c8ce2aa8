#include "horo/state/foreign_memory.h"

#include <sys/prctl.h>
#include <sys/uio.h>

#include <algorithm>
#include <array>
#include <cerrno>

namespace horo {
namespace {

constexpr std::size_t kMostParts = 512;  // of one call; the kernel takes 1,024

// A kernel without Yama refuses the call, and needs none.
void allow(unsigned long pid) {
  ::prctl(PR_SET_PTRACER, pid, 0, 0, 0);
}

}  // namespace

ReadableBy::ReadableBy(std::int64_t pid) {
  if (pid <= 0) return;  // -1 would mean any process
  allow(static_cast<unsigned long>(pid));
}

ReadableBy::~ReadableBy() {
  allow(0);
}

bool read_memory(std::int64_t pid, std::span<const ForeignPart> parts) {
  std::array<iovec, kMostParts> mine{}, theirs{};
  while (!parts.empty()) {
    const auto some = parts.first(std::min(parts.size(), kMostParts));
    parts = parts.subspan(some.size());
    std::size_t wanted = 0;
    for (std::size_t i = 0; i < some.size(); ++i) {
      mine[i] = {some[i].to, some[i].bytes};
      theirs[i] = {reinterpret_cast<void*>(some[i].from), some[i].bytes};
      wanted += some[i].bytes;
    }
    const ssize_t got =
        ::process_vm_readv(static_cast<pid_t>(pid), mine.data(), some.size(), theirs.data(), some.size(), 0);
    if (got < 0 || static_cast<std::size_t>(got) != wanted) return false;
  }
  return true;
}

}  // namespace horo
