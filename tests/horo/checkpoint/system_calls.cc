#include "tests/horo/checkpoint/system_calls.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdarg>
#include <mutex>

namespace horo::test {
namespace {

std::mutex hook_mutex;
SystemCallHook current_hook;
std::atomic<bool> has_hook = false;  // orders nothing: the mutex does
std::atomic<std::size_t> most_written = 0;
std::atomic<int> stat_error = 0;
thread_local bool is_inside = false;

class Inside {
 public:
  Inside() { is_inside = true; }
  ~Inside() { is_inside = false; }
  Inside(const Inside&) = delete;
  Inside& operator=(const Inside&) = delete;
};

int tell(const SystemCall& call) {
  if (!has_hook || is_inside) return 0;
  const Inside inside;
  const std::lock_guard lock(hook_mutex);
  return current_hook ? current_hook(call) : 0;
}

template <class Function>
Function* real(const char* name) {
  return reinterpret_cast<Function*>(::dlsym(RTLD_NEXT, name));
}

template <class Call>
auto watched(SystemCall told, Call call) -> decltype(call()) {
  const int error = tell(told);
  if (error != 0) {
    errno = error;
    return -1;
  }
  const auto result = call();
  if (result < 0) return result;
  told.is_done = true;
  if (told.name == "openat") told.fd = static_cast<int>(result);
  const int before = errno;
  tell(told);
  errno = before;
  return result;
}

}  // namespace

void set_system_call_hook(SystemCallHook hook) {
  const std::lock_guard lock(hook_mutex);
  current_hook = std::move(hook);
  has_hook = static_cast<bool>(current_hook);
}

void set_stat_error(int error) {
  stat_error = error;
}

void set_short_writes(std::size_t most) {
  most_written = most;
}

}  // namespace horo::test

using horo::test::real;
using horo::test::watched;

extern "C" {

int openat(int fd, const char* path, int flags, ...) {
  mode_t mode = 0;
  if ((flags & O_CREAT) != 0) {
    va_list list;
    va_start(list, flags);
    mode = va_arg(list, mode_t);
    va_end(list);
  }
  static auto* const next = real<int(int, const char*, int, ...)>("openat");
  if ((flags & O_CREAT) == 0) return next(fd, path, flags, mode);
  return watched({"openat", fd, path, false, true}, [&] { return next(fd, path, flags, mode); });
}

ssize_t pwrite(int fd, const void* data, size_t bytes, off_t offset) {
  static auto* const next = real<ssize_t(int, const void*, size_t, off_t)>("pwrite");
  const std::size_t most = horo::test::most_written;
  const std::size_t some = most == 0 ? bytes : std::min(bytes, most);
  return watched({"pwrite", fd, "", false, false}, [&] { return next(fd, data, some, offset); });
}

int fallocate(int fd, int mode, off_t offset, off_t bytes) {
  static auto* const next = real<int(int, int, off_t, off_t)>("fallocate");
  return watched({"fallocate", fd, "", false, false}, [&] { return next(fd, mode, offset, bytes); });
}

int fstatat(int fd, const char* path, struct stat* status, int flags) noexcept {
  static auto* const next = real<int(int, const char*, struct stat*, int)>("fstatat");
  const int error = horo::test::stat_error;
  if (error == 0) return next(fd, path, status, flags);
  errno = error;
  return -1;
}

int fdatasync(int fd) {
  static auto* const next = real<int(int)>("fdatasync");
  return watched({"fdatasync", fd, "", false, false}, [&] { return next(fd); });
}

int fsync(int fd) {
  static auto* const next = real<int(int)>("fsync");
  return watched({"fsync", fd, "", false, false}, [&] { return next(fd); });
}

int sync_file_range(int fd, off_t offset, off_t bytes, unsigned flags) {
  static auto* const next = real<int(int, off_t, off_t, unsigned)>("sync_file_range");
  return watched({"sync_file_range", fd, "", false, false}, [&] { return next(fd, offset, bytes, flags); });
}

int mkdirat(int fd, const char* path, mode_t mode) noexcept {
  static auto* const next = real<int(int, const char*, mode_t)>("mkdirat");
  return watched({"mkdirat", fd, path, false, false}, [&] { return next(fd, path, mode); });
}

int renameat(int from, const char* old_path, int to, const char* new_path) noexcept {
  static auto* const next = real<int(int, const char*, int, const char*)>("renameat");
  return watched({"renameat", from, old_path, false, false}, [&] { return next(from, old_path, to, new_path); });
}

int renameat2(int from, const char* old_path, int to, const char* new_path, unsigned flags) noexcept {
  static auto* const next = real<int(int, const char*, int, const char*, unsigned)>("renameat2");
  return watched({"renameat2", from, old_path, false, false},
                 [&] { return next(from, old_path, to, new_path, flags); });
}

int unlinkat(int fd, const char* path, int flags) noexcept {
  static auto* const next = real<int(int, const char*, int)>("unlinkat");
  return watched({"unlinkat", fd, path, false, false}, [&] { return next(fd, path, flags); });
}

}  // extern "C"
