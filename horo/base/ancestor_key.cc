#include "horo/base/ancestor_key.h"

#include <fcntl.h>
#include <unistd.h>

#include <array>
#include <cstdlib>
#include <fstream>
#include <string>
#include <string_view>

namespace horo {
namespace {

constexpr std::string_view kKeyOfRun = "/memfd:horo-key";  // host_start.cc of `horo run` names it
constexpr int kMostAncestors = 64;

// 0 if there is none. The second field of the file, a name in parentheses, may have spaces and parentheses.
pid_t parent_of(pid_t pid) {
  std::ifstream file("/proc/" + std::to_string(pid) + "/stat");
  std::string line;
  if (!std::getline(file, line)) return 0;
  const std::size_t end = line.rfind(')');  // then " S 1234 "
  return end == std::string::npos || end + 4 > line.size() ? 0 : std::atoi(line.c_str() + end + 4);
}

bool is_key_of_run(const std::string& path) {
  std::array<char, 64> target{};
  const ssize_t length = ::readlink(path.c_str(), target.data(), target.size());
  return length > 0 && std::string_view(target.data(), static_cast<std::size_t>(length)).starts_with(kKeyOfRun);
}

}  // namespace

int open_key_of_ancestor(int fd) {
  pid_t pid = ::getppid();
  for (int seen = 0; pid > 1 && seen < kMostAncestors; ++seen, pid = parent_of(pid)) {
    const std::string path = "/proc/" + std::to_string(pid) + "/fd/" + std::to_string(fd);
    if (is_key_of_run(path)) return ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  }
  return -1;
}

}  // namespace horo
