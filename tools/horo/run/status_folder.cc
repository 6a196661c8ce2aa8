#include "tools/horo/run/status_folder.h"

#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <filesystem>
#include <string_view>
#include <system_error>

namespace horo::tools {
namespace {

constexpr std::string_view kSuffix = ".sock";

// In such a folder only the owner and root can rename or remove a folder of the owner.
bool is_safe_parent(const std::string& folder, uid_t owner) {
  struct stat status {};
  if (::stat(folder.c_str(), &status) != 0) return false;
  const bool others_write = (status.st_mode & (S_IWGRP | S_IWOTH)) != 0;
  return (status.st_uid == owner || status.st_uid == 0) && (!others_write || (status.st_mode & S_ISVTX) != 0);
}

std::string octal(mode_t mode) {
  std::string digits;
  for (int shift = 9; shift >= 0; shift -= 3) digits += static_cast<char>('0' + ((mode >> shift) & 7));
  return digits;
}

}  // namespace

std::vector<std::string> status_folders(const char* runtime_folder, uid_t owner) {
  std::vector<std::string> folders;
  const std::string usual = "/run/user/" + std::to_string(owner);  // also where the variable is not set, as with cron
  if (runtime_folder != nullptr && runtime_folder[0] == '/' && runtime_folder != usual) {
    folders.push_back(std::string(runtime_folder) + "/horo");
  }
  folders.push_back(usual + "/horo");
  folders.push_back("/tmp/horo-" + std::to_string(owner));
  return folders;
}

std::string folder_fault(const std::string& folder, uid_t owner) {
  struct stat status {};
  if (::lstat(folder.c_str(), &status) != 0) return folder + ": " + std::strerror(errno);
  if (S_ISLNK(status.st_mode)) return folder + " is a symbolic link";
  if (!S_ISDIR(status.st_mode)) return folder + " is no folder";
  if (status.st_uid != owner) {
    return folder + " belongs to user " + std::to_string(status.st_uid) + ", expected " + std::to_string(owner);
  }
  if ((status.st_mode & 07777) != 0700) return folder + " has mode " + octal(status.st_mode) + ", expected 0700";
  const std::string parent = folder.substr(0, std::max<std::size_t>(1, folder.rfind('/')));
  if (!is_safe_parent(parent, owner)) return "other users can replace folders in " + parent;
  return "";
}

std::string make_private_folder(const std::string& folder, uid_t owner) {
  if (::mkdir(folder.c_str(), 0700) != 0 && errno != EEXIST) return folder + ": " + std::strerror(errno);
  return folder_fault(folder, owner);
}

std::string socket_path(const std::string& folder, pid_t job) {
  return folder + "/" + std::to_string(job) + std::string(kSuffix);
}

std::vector<StatusSocket> sockets_in(const std::string& folder) {
  std::vector<StatusSocket> sockets;
  std::error_code error;
  const std::filesystem::directory_iterator none;
  for (std::filesystem::directory_iterator file(folder, error); !error && file != none; file.increment(error)) {
    const std::string name = file->path().filename().string();
    pid_t job = 0;
    const auto [end, fault] = std::from_chars(name.data(), name.data() + name.size(), job);
    if (fault == std::errc() && job > 0 && end == name.data() + name.size() - kSuffix.size() &&
        name.ends_with(kSuffix)) {
      sockets.push_back({job, file->path().string()});
    }
  }
  std::sort(sockets.begin(), sockets.end(), [](const auto& a, const auto& b) { return a.job < b.job; });
  return sockets;
}

}  // namespace horo::tools
