#include "horo/base/ancestors.h"

#include <dirent.h>
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <fstream>
#include <memory>

namespace horo {
namespace {

constexpr std::size_t kMostAncestors = 64;

std::string path_of(pid_t pid, const char* entry) {
  return "/proc/" + std::to_string(pid) + "/" + entry;
}

std::string descriptor_path(pid_t pid, int fd) {
  return path_of(pid, "fd/") + std::to_string(fd);
}

std::string name_of(pid_t pid) {
  std::ifstream file(path_of(pid, "comm"));
  std::string name;
  std::getline(file, name);
  return name;
}

}  // namespace

// The second field of the file, a name in parentheses, may have spaces and parentheses; then " S 1234 " follows.
pid_t parent_of(pid_t pid) {
  std::ifstream file(path_of(pid, "stat"));
  std::string line;
  if (!std::getline(file, line)) return 0;
  const std::size_t end = line.rfind(')');
  return end == std::string::npos || end + 4 > line.size() ? 0 : std::atoi(line.c_str() + end + 4);
}

std::vector<pid_t> lineage(pid_t until) {
  std::vector<pid_t> pids;
  for (pid_t pid = ::getpid(); pid > 0 && pid != until && pids.size() < kMostAncestors; pid = parent_of(pid)) {
    pids.push_back(pid);
  }
  return pids;
}

pid_t ancestor_named(std::string_view name) {
  for (const pid_t pid : lineage()) {
    if (pid != ::getpid() && name_of(pid) == name) return pid;
  }
  return 0;
}

bool is_memory_file(pid_t pid, int fd, std::string_view name) {
  std::array<char, 64> target{};
  const ssize_t length = ::readlink(descriptor_path(pid, fd).c_str(), target.data(), target.size());
  if (length <= 0) return false;
  const std::string_view found(target.data(), static_cast<std::size_t>(length));
  return found.starts_with("/memfd:") && found.substr(7).starts_with(name);
}

std::optional<int> memory_file_of(pid_t pid, std::string_view name) {
  const std::unique_ptr<DIR, int (*)(DIR*)> folder(::opendir(path_of(pid, "fd").c_str()), ::closedir);
  if (folder == nullptr) return std::nullopt;
  int first = -1;
  while (const dirent* entry = ::readdir(folder.get())) {
    if (entry->d_name[0] < '0' || entry->d_name[0] > '9') continue;
    const int fd = std::atoi(entry->d_name);
    if ((first < 0 || fd < first) && is_memory_file(pid, fd, name)) first = fd;
  }
  return first;
}

int open_of(pid_t pid, int fd, int flags) {
  return ::open(descriptor_path(pid, fd).c_str(), flags | O_CLOEXEC);
}

}  // namespace horo
