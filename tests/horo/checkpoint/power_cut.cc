#include "tests/horo/checkpoint/power_cut.h"

#include <fcntl.h>
#include <sys/stat.h>

#include <fstream>
#include <iterator>

namespace horo::test {
namespace {

namespace fs = std::filesystem;

std::string read_whole(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

std::uint64_t inode_of(const fs::path& path) {
  struct stat status {};
  return ::lstat(path.c_str(), &status) == 0 ? status.st_ino : 0;
}

fs::path path_of(int fd) {
  return fs::read_symlink("/proc/self/fd/" + std::to_string(fd));
}

}  // namespace

PowerCut::PowerCut(fs::path root) : root_(std::move(root)) {}

std::uint64_t PowerCut::id_of(std::uint64_t inode) {
  const auto [place, is_new] = ids_.try_emplace(inode, next_id_);
  if (is_new) ++next_id_;
  return place->second;
}

PowerCut::Entries PowerCut::entries_now(const fs::path& folder) {
  Entries entries;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder))
    entries[entry.path().filename().string()] = {id_of(inode_of(entry.path())), entry.is_directory()};
  return entries;
}

void PowerCut::follow(const SystemCall& call) {
  if (!call.is_done) return;
  struct stat status {};
  if (call.creates || call.name == "mkdirat") {  // another file has the inode now
    const bool is_there = call.creates ? ::fstat(call.fd, &status) == 0
                                       : ::fstatat(call.fd, call.path.c_str(), &status, AT_SYMLINK_NOFOLLOW) == 0;
    if (is_there) ids_[status.st_ino] = next_id_++;
  }
  if (call.name != "fsync" && call.name != "fdatasync") return;
  if (::fstat(call.fd, &status) != 0) return;
  const std::uint64_t id = id_of(status.st_ino);
  if (S_ISDIR(status.st_mode)) {
    entries_[id] = entries_now(path_of(call.fd));
  } else {
    contents_[id] = read_whole(path_of(call.fd));
  }
}

void PowerCut::cut(const fs::path& to, bool loses_names) {
  fs::remove_all(to);
  fs::create_directories(to);
  if (loses_names) {
    copy_lost(id_of(inode_of(root_)), to);
  } else {
    copy_now(root_, to);
  }
}

void PowerCut::copy_lost(std::uint64_t id, const fs::path& to) {
  for (const auto& [name, entry] : entries_[id]) {
    if (entry.is_folder) {
      fs::create_directories(to / name);
      copy_lost(entry.id, to / name);
    } else {
      std::ofstream(to / name, std::ios::binary) << contents_[entry.id];
    }
  }
}

void PowerCut::copy_now(const fs::path& from, const fs::path& to) {
  for (const auto& [name, entry] : entries_now(from)) {
    if (entry.is_folder) {
      fs::create_directories(to / name);
      copy_now(from / name, to / name);
    } else {
      std::ofstream(to / name, std::ios::binary) << contents_[entry.id];
    }
  }
}

}  // namespace horo::test
