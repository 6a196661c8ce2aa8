// Sealing comes before the file is handed over: whoever maps it checks the seals, and its size cannot change any more.
#include "ring/shm_segment.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <cerrno>
#include <stdexcept>
#include <system_error>

#include "horo/base/error.h"
#include "horo/base/forked.h"
#include "ring/say.h"

namespace horo {
namespace {

constexpr int kSeals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;

}  // namespace

ShmSegment::ShmSegment(Fd file, std::size_t bytes) : file_(std::move(file)), generation_(fork_generation()) {
  void* at = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, file_.get(), 0);
  if (at == MAP_FAILED) raise_errno(say("cannot map ", bytes, " bytes of shared memory (mmap)"));
  memory_ = {static_cast<std::byte*>(at), bytes};
  ::madvise(at, bytes, MADV_DONTFORK);
}

ShmSegment ShmSegment::create(std::size_t bytes) {
  if (bytes > kMaxBytes)
    throw std::invalid_argument(say("a segment of ", bytes, " bytes; expected at most ", kMaxBytes));
  Fd file(::memfd_create("horo", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!file.is_open()) raise_errno("cannot make shared memory (memfd_create)");
  const auto size = static_cast<off_t>(bytes);
  if (::ftruncate(file.get(), size) != 0)
    raise_errno(say("cannot make ", bytes, " bytes of shared memory (ftruncate)"));
  while (::fallocate(file.get(), 0, 0, size) != 0) {  // a signal of the program's own may come in between
    if (errno != EINTR) raise_errno(say("no ", bytes, " bytes for shared memory (fallocate)"));
  }
  if (::fcntl(file.get(), F_ADD_SEALS, kSeals) != 0) raise_errno("cannot seal shared memory (F_ADD_SEALS)");
  return {std::move(file), bytes};
}

ShmSegment ShmSegment::map(Fd file, std::size_t least_bytes) {
  const int seals = ::fcntl(file.get(), F_GET_SEALS);
  if (seals < 0 || (seals & kSeals) != kSeals) throw ProtocolError("the shared memory's size is not sealed");
  struct stat status {};
  if (::fstat(file.get(), &status) != 0) raise_errno("shared memory (fstat)");
  const auto bytes = static_cast<std::size_t>(status.st_size);
  if (bytes < least_bytes || bytes > kMaxBytes) throw ProtocolError(say("shared memory of ", bytes, " bytes"));
  return {std::move(file), bytes};
}

ShmSegment::ShmSegment(ShmSegment&& other) noexcept
    : file_(std::move(other.file_)), memory_(std::exchange(other.memory_, {})), generation_(other.generation_) {}

ShmSegment& ShmSegment::operator=(ShmSegment&& other) noexcept {
  std::swap(file_, other.file_);
  std::swap(memory_, other.memory_);
  std::swap(generation_, other.generation_);
  return *this;
}

// In a forked child something else may lie at this place by now.
ShmSegment::~ShmSegment() {
  if (!memory_.empty() && fork_generation() == generation_) ::munmap(memory_.data(), memory_.size());
}

}  // namespace horo
