#include "horo/checkpoint/folder.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <stdexcept>

#include "horo/base/say.h"

namespace horo::checkpoint {
namespace {

constexpr std::size_t kMaxFinalName = 200;
constexpr const char* kOpenAndRemoved = ".nfs";  // by NFS, until its readers close it

void take_held(SaveFolder& save) {
  try {
    save.held = create_file(save.folder, kHeld);
  } catch (const std::exception&) {
    remove_folder(save.parent, save.temporary_name);
    throw;
  }
  try_lock(save.held);
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

bool exists_in(const OpenFolder& parent, const std::string& name) {
  struct stat status {};
  if (::fstatat(parent.fd.get(), name.c_str(), &status, AT_SYMLINK_NOFOLLOW) == 0) return true;
  if (errno == ENOENT) return false;
  fail_file("cannot read", parent.path_of(name), errno);
}

bool is_checkpoint(const OpenFolder& parent, const std::string& name) {
  std::vector<std::string> names = names_in(open_folder_in(parent, name));
  std::erase_if(names, [](const std::string& file) { return file.starts_with(kOpenAndRemoved); });
  return std::ranges::all_of(names, is_own_file) &&
         (names.empty() || std::ranges::find(names, kIndexFile) != names.end());
}

void check_replaced(const OpenFolder& parent, const std::string& name) {
  if (!is_checkpoint(parent, name)) {
    throw std::runtime_error(parent.path_of(name) +
                             " exists, and is no checkpoint, or has other files: it is not replaced");
  }
}

void rename_in(const OpenFolder& parent, const std::string& from, const std::string& to) {
  if (::renameat(parent.fd.get(), from.c_str(), parent.fd.get(), to.c_str()) != 0)
    fail_file("cannot rename " + parent.path_of(from) + " to", parent.path_of(to), errno);
}

OpenFolder make_parent(const SavePlace& place) {
  make_folders(place.parent);
  return open_folder(place.parent, true);
}

SaveFolder make_save_folder(const SavePlace& place) {
  OpenFolder parent = make_parent(place);
  if (exists_in(parent, place.name)) check_replaced(parent, place.name);
  const std::string name = temporary_name_for(place.name);
  make_folder_in(parent, name);
  OpenFolder folder = open_folder_in(parent, name);
  SaveFolder save{std::move(parent), std::move(folder), name, place.name, Fd()};
  take_held(save);
  return save;
}

SaveFolder see_save_folder(const SavePlace& place, const std::string& temporary_name) {
  OpenFolder parent = open_folder(place.parent, true);
  OpenFolder folder = open_folder_in(parent, temporary_name);
  return {std::move(parent), std::move(folder), temporary_name, place.name, Fd()};
}

// The folder keeps its inode when it gets its final name. Rank 0 removes a file when that name is on the disk.
SaveEnd end_of(const SaveFolder& save) {
  struct stat mine {};
  if (::fstat(save.folder.fd.get(), &mine) != 0) {
    if (errno == ESTALE) return SaveEnd::kGone;  // another host has removed it
    fail_file("cannot read", save.folder.path, errno);
  }
  const auto is_named = [&](const std::string& name) {
    struct stat there {};
    if (::fstatat(save.parent.fd.get(), name.c_str(), &there, AT_SYMLINK_NOFOLLOW) == 0)
      return mine.st_ino == there.st_ino && mine.st_dev == there.st_dev;
    if (errno != ENOENT) fail_file("cannot read", save.parent.path_of(name), errno);
    return false;
  };
  if (is_named(save.temporary_name)) return SaveEnd::kOpen;
  if (!is_named(save.final_name)) return SaveEnd::kGone;
  return exists_in(save.folder, kPublishing) ? SaveEnd::kPublishing : SaveEnd::kPublished;
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

void discard_folder(const OpenFolder& parent, const std::string& name, const std::string& final_name) noexcept {
  try {
    const std::string removed = removed_name_for(final_name);
    rename_in(parent, name, removed);
    remove_folder(parent, removed);
  } catch (const std::exception&) {  // it stays
  }
}

}  // namespace horo::checkpoint
