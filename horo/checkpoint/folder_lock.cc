#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <stdexcept>

#include "horo/base/say.h"
#include "horo/base/time.h"
#include "horo/checkpoint/folder.h"
#include "ring/os/backoff.h"

namespace horo::checkpoint {
namespace {

constexpr const char* kLockFile = ".lock";
constexpr std::chrono::milliseconds kBetweenTries{50};
constexpr std::uint64_t kMaxHolderBytes = 1024;

std::string this_job() {
  std::array<char, 256> host{};
  if (::gethostname(host.data(), host.size() - 1) != 0) host[0] = '?';
  return say("process ", ::getpid(), " on ", host.data());
}

Fd open_lock(const OpenFolder& parent) {
  const int flags = O_RDWR | O_CREAT | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC;
  int opened = -1;
  do {
    opened = ::openat(parent.fd.get(), kLockFile, flags, 0666);
  } while (opened < 0 && errno == EINTR);
  Fd fd(opened);
  if (!fd.is_open()) fail_file("cannot open", parent.path_of(kLockFile), errno);
  return fd;
}

}  // namespace

FolderLock::FolderLock(const OpenFolder& parent, std::chrono::milliseconds patience) {
  const TimePoint until = Clock::now() + patience;
  std::optional<FolderLock> taken = try_take(parent);
  for (; !taken && Clock::now() < until; taken = try_take(parent)) back_off(kBetweenTries);
  if (taken) {
    *this = std::move(*taken);
    return;
  }
  std::string holder = text_in_file(open_lock(parent), parent.path_of(kLockFile), kMaxHolderBytes);
  throw std::runtime_error(say("another job writes checkpoints to ", parent.path, ": ",
                               holder.empty() ? "its process is not known" : holder));
}

std::optional<FolderLock> FolderLock::try_take(const OpenFolder& parent) {
  Fd fd = open_lock(parent);
  const LockResult result = try_lock(fd);
  if (result == LockResult::kBusy) return std::nullopt;
  FolderLock lock;
  struct stat status {};
  if (::fstat(parent.fd.get(), &status) != 0) fail_file("cannot read the folder", parent.path, errno);
  lock.device_ = status.st_dev;
  lock.inode_ = status.st_ino;
  if (result == LockResult::kUnsupported) return lock;
  const std::string job = this_job();
  if (::ftruncate(fd.get(), 0) == 0) {  // the name is for the error of another job alone
    [[maybe_unused]] const ssize_t written = ::pwrite(fd.get(), job.data(), job.size(), 0);
  }
  lock.fd_ = std::move(fd);
  return lock;
}

bool FolderLock::is_of(const OpenFolder& parent) const {
  struct stat status {};
  return ::fstat(parent.fd.get(), &status) == 0 && status.st_dev == device_ && status.st_ino == inode_;
}

}  // namespace horo::checkpoint
