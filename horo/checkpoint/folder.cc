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
constexpr const char* kPublishing = "rank-00000";  // its new name is not on the disk yet
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
  SavePlace place;
  if (!path.empty()) {
    std::filesystem::path whole = std::filesystem::absolute(std::filesystem::path(path)).lexically_normal();
    if (!whole.has_filename()) whole = whole.parent_path();  // it ends with a slash
    place = {whole.parent_path().string(), whole.filename().string()};
  }
  if (place.name.empty() || place.name.front() == '.' || place.name.size() > kMaxFinalName) {
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

// The folder keeps its inode when it gets its final name. Rank 0 removes a file when that name is on the disk.
SaveEnd end_of(const SaveFolder& save) {
  struct stat mine {
  }, there{};
  if (::fstat(save.folder.fd.get(), &mine) != 0) return SaveEnd::kGone;
  const auto is_named = [&](const std::string& name) {
    return ::fstatat(save.parent.fd.get(), name.c_str(), &there, AT_SYMLINK_NOFOLLOW) == 0 &&
           mine.st_ino == there.st_ino && mine.st_dev == there.st_dev;
  };
  if (is_named(save.temporary_name)) return SaveEnd::kOpen;
  if (!is_named(save.final_name)) return SaveEnd::kGone;
  return exists(save.folder, kPublishing) ? SaveEnd::kPublishing : SaveEnd::kPublished;
}

// The new names, and how to take them back.
class Renaming {
 public:
  explicit Renaming(const SaveFolder& save) : save_(save) {}

  void run() {
    const OpenFolder& parent = save_.parent;
    if (!exists(parent, save_.final_name)) {
      rename_in(parent, save_.temporary_name, save_.final_name);
    } else if (!is_checkpoint(parent, save_.final_name)) {
      throw std::runtime_error(parent.path_of(save_.final_name) + " exists, and is no checkpoint: it is not replaced");
    } else if (exchange_names(parent, save_.temporary_name, save_.final_name)) {
      old_name_ = save_.temporary_name;
      is_exchanged_ = true;
    } else {
      const std::string removed = removed_name_for(save_.final_name);
      rename_in(parent, save_.final_name, removed);
      old_name_ = removed;
      rename_in(parent, save_.temporary_name, save_.final_name);
    }
  }

  void take_back() {
    if (is_exchanged_) {
      exchange_names(save_.parent, save_.temporary_name, save_.final_name);
      return;
    }
    rename_in(save_.parent, save_.final_name, save_.temporary_name);
    if (!old_name_.empty()) rename_in(save_.parent, old_name_, save_.final_name);
  }

  void remove_old() noexcept {
    if (!old_name_.empty()) remove_folder(save_.parent, old_name_);
  }

 private:
  const SaveFolder& save_;
  std::string old_name_;  // which the checkpoint that is replaced has now
  bool is_exchanged_ = false;
};

void publish(const SaveFolder& save, const std::string& index, const std::vector<std::string>& obsolete) {
  put_text(save.folder, kIndexFile, index, true);
  for (const std::string& file : obsolete) ::unlinkat(save.folder.fd.get(), file.c_str(), 0);
  put_text(save.folder, kPublishing, "", false);
  sync_folder(save.folder);
  Renaming renaming(save);
  renaming.run();
  try {
    sync_folder(save.parent);
  } catch (const std::exception&) {
    renaming.take_back();
    throw;
  }
  ::unlinkat(save.folder.fd.get(), kPublishing, 0);
  renaming.remove_old();
}

// The text first: a rank that meets the rest of it finds the text. On a full disk there is room for it afterwards.
void leave_failure(const SaveFolder& save, const std::string& text) noexcept {
  const SaveEnd end = end_of(save);
  const bool has_final_name = end == SaveEnd::kPublished || end == SaveEnd::kPublishing;
  const auto leave = [&] {
    try {
      put_text(save.folder, kFailure, text, false);
      return true;
    } catch (const std::exception&) {
      return false;
    }
  };
  const bool is_left = leave();
  if (has_final_name) return;
  try {
    for (const std::string& name : names_in(save.folder)) {
      if (name != kFailure) ::unlinkat(save.folder.fd.get(), name.c_str(), 0);
    }
  } catch (const std::exception&) {  // they are removed with the folder, later
  }
  if (!is_left && !leave()) remove_folder(save.parent, save.temporary_name);  // which the other ranks see
}

void remove_failure(const SaveFolder& save) noexcept {
  ::unlinkat(save.folder.fd.get(), kFailure, 0);
  if (end_of(save) == SaveEnd::kOpen) remove_folder(save.parent, save.temporary_name);
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
