#include "elastic/owner_page.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <system_error>

#include "elastic/pass_descriptor.h"
#include "horo/base/error.h"

namespace horo {
namespace {

constexpr std::size_t kPageBytes = 4'096;
constexpr int kSizeSeals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;

[[noreturn]] void fail_page(int fd, const char* call) {
  const int error = errno;
  if (fd >= 0) ::close(fd);
  throw std::system_error(error, std::generic_category(), std::string("the page of the owner word: ") + call);
}

}  // namespace

OwnerPage OwnerPage::make() {
  const int fd = ::memfd_create("horo owner word", MFD_CLOEXEC | MFD_ALLOW_SEALING);
  if (fd < 0) fail_page(fd, "memfd_create");
  if (::ftruncate(fd, kPageBytes) != 0) fail_page(fd, "ftruncate");
  if (::fcntl(fd, F_ADD_SEALS, kSizeSeals) != 0) fail_page(fd, "F_ADD_SEALS");
  void* at = ::mmap(nullptr, kPageBytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  if (at == MAP_FAILED) fail_page(fd, "mmap");
  ::madvise(at, kPageBytes, MADV_DONTFORK);
  return {at, fd};
}

// The size cannot change under the guard: an access beyond the end of a file would end it.
OwnerPage OwnerPage::map(int fd) {
  struct stat status {};
  const int seals = ::fcntl(fd, F_GET_SEALS);
  if (seals < 0 || (seals & kSizeSeals) != kSizeSeals || ::fstat(fd, &status) != 0 || status.st_size != kPageBytes)
    throw ProtocolError("the descriptor that it has passed is not that of a page of sealed size");
  void* at = ::mmap(nullptr, kPageBytes, PROT_READ, MAP_SHARED, fd, 0);
  if (at == MAP_FAILED) fail_page(-1, "mmap");
  return {at, -1};
}

OwnerPage::~OwnerPage() {
  if (at_ != nullptr) ::munmap(at_, kPageBytes);
  if (fd_ >= 0) ::close(fd_);
}

void OwnerPage::pass(int socket) {
  pass_descriptor(socket, fd_);
  ::close(std::exchange(fd_, -1));
}

}  // namespace horo
