#include "horo/base/output_file.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <stdexcept>
#include <system_error>

namespace horo {
namespace {

[[noreturn]] void fail_output(int fd, int error) {
  if (fd >= 0) ::close(fd);
  throw std::system_error(error, std::generic_category());
}

// Why the open file is not written; null: it is.
const char* fault_of(const struct stat& status) {
  if (S_ISCHR(status.st_mode)) return nullptr;
  if (!S_ISREG(status.st_mode)) return "it is neither a regular file nor a device";
  if (status.st_uid != ::geteuid()) return "it belongs to another user";
  return status.st_nlink > 1 ? "it has several names" : nullptr;
}

}  // namespace

// O_NONBLOCK: a pipe of another user does not hold up this process. It has no effect on a regular file.
int open_output_file(int folder, const std::string& path, mode_t mode) {
  const int flags = O_WRONLY | O_CREAT | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC;
  const int fd = ::openat(folder, path.c_str(), flags, mode);
  if (fd < 0 && errno == ELOOP) throw std::invalid_argument("it is a link, which is not followed");
  if (fd < 0 && errno == ENXIO) throw std::invalid_argument("it is neither a regular file nor a device");
  struct stat status {};
  if (fd < 0 || ::fstat(fd, &status) != 0) fail_output(fd, errno);
  const char* const fault = fault_of(status);
  if (fault != nullptr) {
    ::close(fd);
    throw std::invalid_argument(fault);
  }
  if (!S_ISREG(status.st_mode) && ::fcntl(fd, F_SETFL, O_WRONLY) != 0) fail_output(fd, errno);
  return fd;
}

int open_output_alone(const std::string& path, const char* busy) {
  const int fd = open_output_file(AT_FDCWD, path, 0666);
  if (::flock(fd, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK) {
    ::close(fd);
    throw std::invalid_argument(busy);
  }
  if (::ftruncate(fd, 0) != 0 && errno != EINVAL) fail_output(fd, errno);  // EINVAL: a device
  return fd;
}

int open_output_folder(const std::string& path) {
  struct stat status {};
  if (::lstat(path.c_str(), &status) != 0) fail_output(-1, errno);
  if (S_ISLNK(status.st_mode) && status.st_uid != ::geteuid() && status.st_uid != 0)
    throw std::invalid_argument("it is a link of another user, which is not followed");
  const int fd = ::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd < 0) fail_output(fd, errno);
  return fd;
}

}  // namespace horo
