// The size is sealed before the descriptor is passed on. A rank that maps the file checks the seals, so the size cannot
// change under it.
#include "ring/shm/segment.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <cerrno>
#include <stdexcept>
#include <system_error>
#include <utility>

#include "horo/base/error.h"
#include "horo/base/forked.h"
#include "horo/base/say.h"

namespace horo {
namespace {

constexpr int kSeals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;

Fd make_file(std::size_t bytes) {
  Fd file(::memfd_create("horo", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!file.is_open()) raise_errno("cannot make shared memory (memfd_create)");
  if (::ftruncate(file.get(), static_cast<off_t>(bytes)) != 0)
    raise_errno(say("cannot make ", bytes, " bytes of shared memory (ftruncate)"));
  return file;
}

void seal(const Fd& file) {
  if (::fcntl(file.get(), F_ADD_SEALS, kSeals) != 0) raise_errno("cannot seal shared memory (F_ADD_SEALS)");
}

std::size_t sealed_size(const Fd& file) {
  const int seals = ::fcntl(file.get(), F_GET_SEALS);
  if (seals < 0 || (seals & kSeals) != kSeals) throw ProtocolError("the shared memory's size is not sealed");
  struct stat status {};
  if (::fstat(file.get(), &status) != 0) raise_errno("shared memory (fstat)");
  return static_cast<std::size_t>(status.st_size);
}

}  // namespace

ShmSegment::ShmSegment(Fd file, std::size_t bytes, int map_flags)
    : file_(std::move(file)), generation_(fork_generation()) {
  void* at = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | map_flags, file_.get(), 0);
  if (at == MAP_FAILED) raise_errno(say("cannot map ", bytes, " bytes of shared memory (mmap)"));
  memory_ = {static_cast<std::byte*>(at), bytes};
  ::madvise(at, bytes, MADV_DONTFORK);
}

ShmSegment ShmSegment::create(std::size_t bytes) {
  if (bytes > kMaxBytes)
    throw std::invalid_argument(say("a segment of ", bytes, " bytes; expected at most ", kMaxBytes));
  Fd file = make_file(bytes);
  const auto size = static_cast<off_t>(bytes);
  while (::fallocate(file.get(), 0, 0, size) != 0) {  // a signal handler of the program may interrupt it
    if (errno != EINTR) raise_errno(say("no ", bytes, " bytes for shared memory (fallocate)"));
  }
  seal(file);
  return {std::move(file), bytes, MAP_POPULATE};
}

ShmSegment ShmSegment::create_empty(std::size_t bytes) {
  Fd file = make_file(bytes);
  seal(file);
  return {std::move(file), bytes, MAP_NORESERVE};
}

ShmSegment ShmSegment::map(Fd file, std::size_t least_bytes) {
  const std::size_t bytes = sealed_size(file);
  if (bytes < least_bytes || bytes > kMaxBytes) throw ProtocolError(say("shared memory of ", bytes, " bytes"));
  return {std::move(file), bytes, MAP_POPULATE};
}

ShmSegment ShmSegment::map_empty(Fd file) {
  const std::size_t bytes = sealed_size(file);
  return {std::move(file), bytes, MAP_NORESERVE};
}

// A missing page is an error of madvise() here; it would be a signal when the page is touched. Kernels before 5.14 do
// not have MADV_POPULATE_WRITE. There fallocate() backs the pages, with small ones.
void ShmSegment::populate(std::size_t begin, std::size_t bytes) {
  std::byte* const at = memory_.data() + begin;
  if (bytes >= kHugePageBytes) ::madvise(at, bytes, MADV_HUGEPAGE);
  while (::madvise(at, bytes, MADV_POPULATE_WRITE) != 0) {
    if (errno == EINVAL) return populate_small(begin, bytes);
    if (errno != EINTR) raise_errno(say("no ", bytes, " bytes for shared memory (madvise)"));
  }
}

void ShmSegment::populate_small(std::size_t begin, std::size_t bytes) {
  while (::fallocate(file_.get(), 0, static_cast<off_t>(begin), static_cast<off_t>(bytes)) != 0) {
    if (errno != EINTR) raise_errno(say("no ", bytes, " bytes for shared memory (fallocate)"));
  }
}

void ShmSegment::vacate(std::size_t begin, std::size_t bytes) noexcept {
  ::madvise(memory_.data() + begin, bytes, MADV_REMOVE);
}

ShmSegment::ShmSegment(ShmSegment&& other) noexcept
    : file_(std::move(other.file_)), memory_(std::exchange(other.memory_, {})), generation_(other.generation_) {}

ShmSegment& ShmSegment::operator=(ShmSegment&& other) noexcept {
  std::swap(file_, other.file_);
  std::swap(memory_, other.memory_);
  std::swap(generation_, other.generation_);
  return *this;
}

// In a forked child another mapping may be at this address.
ShmSegment::~ShmSegment() {
  if (!memory_.empty() && fork_generation() == generation_) ::munmap(memory_.data(), memory_.size());
}

}  // namespace horo
