#include "horo/base/key_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstddef>
#include <cstdlib>
#include <cstring>

#include "horo/base/ancestor_key.h"
#include "horo/base/settings.h"

namespace horo {
namespace {

// Python's subprocess and multiprocessing close all descriptors in a new process, and keep its variables.
constexpr const char* kNotInherited =
    ". A process that a rank has started inherits this variable and mostly not the descriptor: it is not a rank, and "
    "must not call init. In Python put horo.init() and the training under if __name__ == \"__main__\":";

constexpr const char* kVariable = "HORO_KEY_FILE";
constexpr mode_t kOthers = 0007, kGroupAndOthers = 0077, kWrittenByOthers = 0022;

// Closes its descriptor.
class File {
 public:
  explicit File(int fd) : fd_(fd) {}
  ~File() {
    if (fd_ >= 0) ::close(fd_);
  }
  File(const File&) = delete;
  File& operator=(const File&) = delete;
  int fd() const { return fd_; }

 private:
  int fd_;
};

// One more byte than a key has shows that there are more. Less than 0: an error, in errno.
ssize_t read_start(int fd, std::array<std::byte, kKeyBytes + 1>& bytes) {
  ssize_t got = 0;
  do {
    got = ::pread(fd, bytes.data(), bytes.size(), 0);
  } while (got < 0 && errno == EINTR);
  return got;
}

bool is_read_only(int fd) {
  struct statvfs status {};
  return ::fstatvfs(fd, &status) == 0 && (status.f_flag & ST_RDONLY) != 0;
}

JobKey key_from_descriptor(int fd, const std::string& variable, const std::string& value, const std::string& hint) {
  std::array<std::byte, kKeyBytes + 1> bytes{};
  const ssize_t got = read_start(fd, bytes);
  if (got < 0) {
    const std::string error = std::strerror(errno);
    refuse_setting(variable, value, "32 readable bytes, but reading failed: " + error + hint);
  }
  if (got != static_cast<ssize_t>(kKeyBytes)) {
    const std::string found = got > static_cast<ssize_t>(kKeyBytes) ? "more" : std::to_string(got);
    refuse_setting(variable, value, "exactly 32 bytes, found " + found + hint);
  }
  JobKey key{};
  std::copy_n(bytes.begin(), key.size(), key.begin());
  return key;
}

}  // namespace

std::string key_file_fault(const KeyFileFacts& facts) {
  if (!S_ISREG(facts.mode)) return "a regular file";
  if (facts.owner != facts.user && facts.owner != 0) return "a file that belongs to this user, or to root";
  if ((facts.mode & kGroupAndOthers) == 0) return "";
  if (facts.owner != 0) return "a file that no other user may read or write: chmod 600 makes it private";
  if ((facts.mode & kWrittenByOthers) == 0 && ((facts.mode & kOthers) == 0 || facts.is_read_only)) return "";
  return "a file of root that no other user may write or read, but for a group: chmod 640 or 600. All may read it "
         "where "
         "it is mounted read-only, as a secret of a container";
}

JobKey key_from_file(const char* path) {
  const File file(::open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  struct stat status {};
  if (file.fd() < 0 || ::fstat(file.fd(), &status) != 0)
    refuse_setting(kVariable, path, std::string("a file with the job key, but: ") + std::strerror(errno));
  const std::string fault = key_file_fault({status.st_mode, status.st_uid, ::geteuid(), is_read_only(file.fd())});
  if (!fault.empty()) refuse_setting(kVariable, path, fault);
  return key_from_descriptor(file.fd(), kVariable, path, "");
}

JobKey key_from_inherited(const char* number) {
  const int own = std::atoi(number);
  std::array<std::byte, kKeyBytes + 1> bytes{};
  const File inherited(read_start(own, bytes) == static_cast<ssize_t>(kKeyBytes) ? -1 : open_key_of_ancestor(own));
  return key_from_descriptor(inherited.fd() < 0 ? own : inherited.fd(), "HORO_KEY_FD", number, kNotInherited);
}

}  // namespace horo
