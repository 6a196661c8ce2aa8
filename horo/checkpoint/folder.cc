#include "horo/checkpoint/folder.h"

#include <dirent.h>
#include <fcntl.h>
#include <linux/fs.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <cstdio>
#include <ctime>
#include <filesystem>
#include <memory>
#include <stdexcept>

#include "horo/base/say.h"

namespace horo::checkpoint {
namespace {

constexpr const char* kTemporary = ".tmp-";
constexpr const char* kRemoved = ".del-";
constexpr const char* kFailure = "failed";
constexpr std::size_t kMaxFinalName = 200;
constexpr std::uint64_t kMaxFailureBytes = 1 << 16;
constexpr std::time_t kYoung = 10;  // seconds in which a folder may have no file that is locked yet

// What a save makes: parts, the index, and the messages of the ranks to rank 0.
bool is_own_file(const std::string& name) {
  return name.starts_with("part-") || name.starts_with("rank-") || name.starts_with(kIndexFile) ||
         name.starts_with(kFailure);
}

std::string random_digits() {
  std::uint64_t number = 0;
  if (::getrandom(&number, sizeof(number), 0) != sizeof(number)) raise_errno("getrandom");
  std::array<char, 17> digits{};
  std::snprintf(digits.data(), digits.size(), "%016llx", static_cast<unsigned long long>(number));
  return digits.data();
}

bool exists(const OpenFolder& parent, const std::string& name) {
  struct stat status {};
  return ::fstatat(parent.fd.get(), name.c_str(), &status, AT_SYMLINK_NOFOLLOW) == 0;
}

// Nothing but what horo makes, or nothing at all.
bool is_checkpoint(const OpenFolder& parent, const std::string& name) {
  const std::vector<std::string> names = names_in(open_folder_in(parent, name));
  return names.empty() || std::ranges::find(names, kIndexFile) != names.end();
}

// Exchanges two names at once. False: the kernel or the file system cannot.
bool exchange_names(const OpenFolder& parent, const std::string& one, const std::string& other) {
  const int fd = parent.fd.get();
  return ::renameat2(fd, one.c_str(), fd, other.c_str(), RENAME_EXCHANGE) == 0;
}

void rename_in(const OpenFolder& parent, const std::string& from, const std::string& to) {
  if (::renameat(parent.fd.get(), from.c_str(), parent.fd.get(), to.c_str()) != 0)
    fail_file("cannot rename " + parent.path_of(from) + " to", parent.path_of(to), errno);
}

// No process writes parts in it.
bool is_abandoned(const OpenFolder& parent, const std::string& name) {
  const OpenFolder folder = open_folder_in(parent, name);
  struct stat status {};
  if (::fstat(folder.fd.get(), &status) != 0 || std::time(nullptr) - status.st_mtime < kYoung) return false;
  for (const std::string& file : names_in(folder)) {
    if (!file.starts_with("part-")) continue;
    const Fd fd = open_file(folder, file);
    if (fd.is_open() && try_lock(fd) != LockResult::kLocked) return false;
  }
  return true;
}

}  // namespace

SavePlace place_of(const std::string& path) {
  std::filesystem::path whole = std::filesystem::absolute(std::filesystem::path(path)).lexically_normal();
  if (!whole.has_filename()) whole = whole.parent_path();  // it ends with a slash
  const SavePlace place{whole.parent_path().string(), whole.filename().string()};
  if (path.empty() || place.name.empty() || place.name.front() == '.' || place.name.size() > kMaxFinalName) {
    throw std::invalid_argument(say("the checkpoint \"", path, "\" is no path of a folder whose name has 1 to ",
                                    kMaxFinalName, " bytes and begins with no dot"));
  }
  return place;
}

std::string temporary_name_for(const std::string& final_name) {
  return kTemporary + final_name + "-" + random_digits();
}

std::string removed_name_for(const std::string& final_name) {
  return kRemoved + final_name + "-" + random_digits();
}

SaveFolder make_save_folder(const SavePlace& place) {
  make_folders(place.parent);
  OpenFolder parent = open_folder(place.parent, true);
  if (exists(parent, place.name) && !is_checkpoint(parent, place.name))
    throw std::runtime_error(parent.path_of(place.name) + " exists, and is no checkpoint: it is not replaced");
  const std::string name = temporary_name_for(place.name);
  if (::mkdirat(parent.fd.get(), name.c_str(), 0777) != 0)
    fail_file("cannot make the folder", parent.path_of(name), errno);
  OpenFolder folder = open_folder_in(parent, name);
  return {std::move(parent), std::move(folder), name, place.name};
}

SaveFolder see_save_folder(const SavePlace& place, const std::string& temporary_name) {
  OpenFolder parent = open_folder(place.parent, true);
  OpenFolder folder = open_folder_in(parent, temporary_name);
  return {std::move(parent), std::move(folder), temporary_name, place.name};
}

// The folder keeps its inode when it gets its final name.
SaveEnd end_of(const SaveFolder& save) {
  if (exists(save.parent, save.temporary_name)) {
    struct stat mine {
    }, there{};
    const bool is_same =
        ::fstat(save.folder.fd.get(), &mine) == 0 &&
        ::fstatat(save.parent.fd.get(), save.temporary_name.c_str(), &there, AT_SYMLINK_NOFOLLOW) == 0 &&
        mine.st_ino == there.st_ino;
    if (is_same) return SaveEnd::kOpen;  // else names were exchanged
  }
  struct stat mine {
  }, there{};
  const bool is_there = ::fstat(save.folder.fd.get(), &mine) == 0 &&
                        ::fstatat(save.parent.fd.get(), save.final_name.c_str(), &there, AT_SYMLINK_NOFOLLOW) == 0;
  return is_there && mine.st_ino == there.st_ino && mine.st_dev == there.st_dev ? SaveEnd::kPublished : SaveEnd::kGone;
}

void publish(const SaveFolder& save, const std::string& index, const std::vector<std::string>& obsolete) {
  put_text(save.folder, kIndexFile, index, true);
  for (const std::string& file : obsolete) ::unlinkat(save.folder.fd.get(), file.c_str(), 0);
  sync_folder(save.folder);
  const std::string removed = removed_name_for(save.final_name);
  if (!exists(save.parent, save.final_name)) {
    rename_in(save.parent, save.temporary_name, save.final_name);
  } else if (!is_checkpoint(save.parent, save.final_name)) {
    throw std::runtime_error(save.parent.path_of(save.final_name) +
                             " exists, and is no checkpoint: it is not replaced");
  } else if (exchange_names(save.parent, save.temporary_name, save.final_name)) {
    rename_in(save.parent, save.temporary_name, removed);
  } else {
    rename_in(save.parent, save.final_name, removed);
    rename_in(save.parent, save.temporary_name, save.final_name);
  }
  sync_folder(save.parent);
  remove_folder(save.parent, removed);
}

void leave_failure(const SaveFolder& save, const std::string& text) noexcept {
  try {
    for (const std::string& name : names_in(save.folder)) ::unlinkat(save.folder.fd.get(), name.c_str(), 0);
    put_text(save.folder, kFailure, text, false);
  } catch (const std::exception&) {  // the others see that the folder is gone
    remove_folder(save.parent, save.temporary_name);
  }
}

std::optional<std::string> failure_in(const SaveFolder& save) {
  const Fd fd = open_file(save.folder, kFailure);
  if (!fd.is_open()) return std::nullopt;
  return text_in_file(fd, save.folder.path_of(kFailure), kMaxFailureBytes);
}

void remove_folder(const OpenFolder& parent, const std::string& name) noexcept {
  try {
    const OpenFolder folder = open_folder_in(parent, name);
    for (const std::string& file : names_in(folder)) {
      if (is_own_file(file)) ::unlinkat(folder.fd.get(), file.c_str(), 0);
    }
  } catch (const std::exception&) {
    return;
  }
  ::unlinkat(parent.fd.get(), name.c_str(), AT_REMOVEDIR);
}

std::optional<std::uint64_t> step_in(const std::string& name) {
  constexpr std::string_view kPrefix = "step-";
  if (!name.starts_with(kPrefix)) return std::nullopt;
  std::uint64_t step = 0;
  const char* const end = name.data() + name.size();
  const auto [stop, error] = std::from_chars(name.data() + kPrefix.size(), end, step);
  if (error != std::errc() || stop != end) return std::nullopt;
  return step;
}

std::vector<std::string> names_in(const OpenFolder& folder) {
  const int copy = ::openat(folder.fd.get(), ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
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

void remove_leftovers(const OpenFolder& parent) noexcept {
  try {
    for (const std::string& name : names_in(parent)) {
      if (name.starts_with(kRemoved)) remove_folder(parent, name);
      if (name.starts_with(kTemporary) && is_abandoned(parent, name)) remove_folder(parent, name);
    }
  } catch (const std::exception&) {  // they stay
  }
}

}  // namespace horo::checkpoint
