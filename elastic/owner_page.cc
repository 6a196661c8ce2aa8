#include "elastic/owner_page.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <system_error>

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

// A packet of no bytes would be the end of the socket.
void OwnerPage::pass(int socket) {
  std::byte one{};
  iovec bytes{&one, 1};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
  msghdr packet{};
  packet.msg_iov = &bytes;
  packet.msg_iovlen = 1;
  packet.msg_control = control;
  packet.msg_controllen = sizeof control;
  cmsghdr* const passed = CMSG_FIRSTHDR(&packet);
  passed->cmsg_level = SOL_SOCKET;
  passed->cmsg_type = SCM_RIGHTS;
  passed->cmsg_len = CMSG_LEN(sizeof(int));
  std::memcpy(CMSG_DATA(passed), &fd_, sizeof(int));
  ssize_t sent = 0;
  do {
    sent = ::sendmsg(socket, &packet, MSG_NOSIGNAL);
  } while (sent < 0 && errno == EINTR);
  const int fd = std::exchange(fd_, -1);
  if (sent < 0) fail_page(fd, "sendmsg");
  ::close(fd);
}

}  // namespace horo
