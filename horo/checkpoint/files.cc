#include "horo/checkpoint/files.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <memory>
#include <stdexcept>
#include <system_error>

#include "horo/base/say.h"

namespace horo::checkpoint {
namespace {

constexpr std::size_t kMostAtOnce = 1 << 30;  // of one call: the kernel moves less than 2 GiB

// Calls again after a signal.
template <class Call>
auto again(Call call) {
  auto result = call();
  while (result < 0 && errno == EINTR) result = call();
  return result;
}

LockResult lock_as(const Fd& fd, int kind) noexcept {
  if (again([&] { return ::flock(fd.get(), kind | LOCK_NB); }) == 0) return LockResult::kLocked;
  return errno == EWOULDBLOCK ? LockResult::kBusy : LockResult::kUnsupported;
}

Fd checked_regular(Fd fd, const std::string& path) {
  struct stat status {};
  if (::fstat(fd.get(), &status) != 0) fail_file("cannot read", path, errno);
  if (!S_ISREG(status.st_mode)) throw std::runtime_error(path + " is not a regular file");
  return fd;
}

}  // namespace

void fail_file(const std::string& what, const std::string& path, int error) {
  throw std::runtime_error(say(what, " ", path, ": ", std::generic_category().message(error)));
}

OpenFolder open_folder(const std::string& path, bool follows) {
  const int flags = O_RDONLY | O_DIRECTORY | O_CLOEXEC | (follows ? 0 : O_NOFOLLOW);
  Fd fd(again([&] { return ::open(path.c_str(), flags); }));
  if (fd.is_open()) return {std::move(fd), path};
  const int error = errno;
  if (error == ELOOP && !follows) throw std::runtime_error(path + " is a link, which is not followed");
  fail_file("cannot open the folder", path, error);
}

OpenFolder open_folder_in(const OpenFolder& parent, const std::string& name) {
  const std::string path = parent.path_of(name);
  const int flags = O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC;
  Fd fd(again([&] { return ::openat(parent.fd.get(), name.c_str(), flags); }));
  if (fd.is_open()) return {std::move(fd), path};
  const int error = errno;
  if (error == ELOOP) throw std::runtime_error(path + " is a link, which is not followed");
  fail_file("cannot open the folder", path, error);
}

void make_folder_in(const OpenFolder& parent, const std::string& name) {
  if (again([&] { return ::mkdirat(parent.fd.get(), name.c_str(), 0777); }) != 0)
    fail_file("cannot make the folder", parent.path_of(name), errno);
}

void make_folders(const std::string& path) {
  const std::filesystem::path folder(path);
  std::error_code ignored;
  if (std::filesystem::is_directory(folder, ignored)) return;
  const std::filesystem::path above = folder.has_parent_path() ? folder.parent_path() : std::filesystem::path(".");
  if (above != folder) make_folders(above.string());
  if (again([&] { return ::mkdir(path.c_str(), 0777); }) != 0 && errno != EEXIST)
    fail_file("cannot make the folder", path, errno);
  sync_folder(open_folder(above.string(), true));
}

std::vector<std::string> names_in(const OpenFolder& folder) {
  const int copy = again([&] { return ::openat(folder.fd.get(), ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC); });
  if (copy < 0) fail_file("cannot read the folder", folder.path, errno);
  const std::unique_ptr<DIR, int (*)(DIR*)> stream(::fdopendir(copy), ::closedir);
  if (stream == nullptr) {
    const int error = errno;
    ::close(copy);
    fail_file("cannot read the folder", folder.path, error);
  }
  std::vector<std::string> names;
  errno = 0;
  while (const dirent* entry = ::readdir(stream.get())) {
    const std::string name = entry->d_name;
    if (name != "." && name != "..") names.push_back(name);
    errno = 0;
  }
  if (errno != 0) fail_file("cannot read the folder", folder.path, errno);
  return names;
}

Fd create_file(const OpenFolder& folder, const std::string& name) {
  const int flags = O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC;
  Fd fd(again([&] { return ::openat(folder.fd.get(), name.c_str(), flags, 0666); }));
  if (!fd.is_open()) fail_file("cannot make", folder.path_of(name), errno);
  return fd;
}

// O_NONBLOCK: a pipe with this name does not hold up the process. It has no effect on a regular file.
Fd open_file(const OpenFolder& folder, const std::string& name) {
  const int flags = O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC;
  Fd fd(again([&] { return ::openat(folder.fd.get(), name.c_str(), flags); }));
  if (fd.is_open()) return checked_regular(std::move(fd), folder.path_of(name));
  if (errno == ENOENT) return fd;
  if (errno == ELOOP) throw std::runtime_error(folder.path_of(name) + " is a link, which is not followed");
  fail_file("cannot read", folder.path_of(name), errno);
}

std::uint64_t size_of_file(const Fd& fd, const std::string& path) {
  struct stat status {};
  if (::fstat(fd.get(), &status) != 0) fail_file("cannot read", path, errno);
  return static_cast<std::uint64_t>(status.st_size);
}

void write_all(const Fd& fd, std::span<const std::byte> bytes, std::uint64_t offset, const std::string& path) {
  while (!bytes.empty()) {
    const std::size_t most = std::min(bytes.size(), kMostAtOnce);
    const ssize_t written = again([&] { return ::pwrite(fd.get(), bytes.data(), most, static_cast<off_t>(offset)); });
    if (written <= 0) fail_file("cannot write", path, written < 0 ? errno : EIO);
    offset += static_cast<std::uint64_t>(written);
    bytes = bytes.subspan(static_cast<std::size_t>(written));
  }
}

void read_all(const Fd& fd, std::span<std::byte> bytes, std::uint64_t offset, const std::string& path) {
  while (!bytes.empty()) {
    const std::size_t most = std::min(bytes.size(), kMostAtOnce);
    const ssize_t got = again([&] { return ::pread(fd.get(), bytes.data(), most, static_cast<off_t>(offset)); });
    if (got < 0) fail_file("cannot read", path, errno);
    if (got == 0) throw std::runtime_error(say(path, " ends at byte ", offset, ": it is damaged"));
    offset += static_cast<std::uint64_t>(got);
    bytes = bytes.subspan(static_cast<std::size_t>(got));
  }
}

std::string text_in_file(const Fd& fd, const std::string& path, std::uint64_t most) {
  const std::uint64_t bytes = size_of_file(fd, path);
  if (bytes > most) throw std::runtime_error(say(path, " has ", bytes, " bytes, at most ", most));
  std::string text(bytes, '\0');
  read_all(fd, std::as_writable_bytes(std::span(text)), 0, path);
  return text;
}

void sync_data(const Fd& fd, const std::string& path) {
  if (again([&] { return ::fdatasync(fd.get()); }) != 0) fail_file("cannot write to the disk", path, errno);
}

void sync_folder(const OpenFolder& folder) {
  if (again([&] { return ::fsync(folder.fd.get()); }) != 0 && errno != EINVAL)
    fail_file("cannot write to the disk", folder.path, errno);
}

void put_text(const OpenFolder& folder, const std::string& name, const std::string& text, bool is_synced) {
  const std::string made = name + "~";
  ::unlinkat(folder.fd.get(), made.c_str(), 0);
  const Fd fd = create_file(folder, made);
  write_all(fd, std::as_bytes(std::span(text)), 0, folder.path_of(name));
  if (is_synced && again([&] { return ::fsync(fd.get()); }) != 0)
    fail_file("cannot write to the disk", folder.path_of(name), errno);
  if (::renameat(folder.fd.get(), made.c_str(), folder.fd.get(), name.c_str()) != 0)
    fail_file("cannot write", folder.path_of(name), errno);
}

LockResult try_lock(const Fd& fd) noexcept {
  return lock_as(fd, LOCK_EX);
}

// NFS gives an exclusive lock to a file that is open for writing alone.
LockResult probe_lock(const Fd& fd) noexcept {
  return lock_as(fd, LOCK_SH);
}

}  // namespace horo::checkpoint
