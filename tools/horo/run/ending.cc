#include "tools/horo/run/ending.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <system_error>
#include <vector>

namespace horo::tools {
namespace {

constexpr unsigned long kExiting = 0x4;  // PF_EXITING of the kernel's flags of a thread

// The fields of a stat file, from the third on: the second, the name, may contain anything.
constexpr std::size_t kFirst = 3, kFlags = 9, kExitCode = 52;

std::vector<std::string> fields_of(const std::filesystem::path& stat) {
  std::ifstream file(stat);
  std::string line;
  std::getline(file, line);
  std::istringstream rest(line.substr(std::min(line.size(), line.rfind(')') + 1)));
  std::vector<std::string> fields;
  for (std::string field; rest >> field;) fields.push_back(field);
  return fields;
}

// A thread that has ended meanwhile counts as exiting.
bool is_exiting(const std::filesystem::path& thread) {
  const std::vector<std::string> fields = fields_of(thread / "stat");
  return fields.size() <= kFlags - kFirst || (std::stoul(fields[kFlags - kFirst]) & kExiting) != 0;
}

}  // namespace

std::optional<int> status_of_ending(pid_t pid) {
  const std::filesystem::path process = std::filesystem::path("/proc") / std::to_string(pid);
  std::error_code error;
  std::size_t threads = 0;
  const std::filesystem::directory_iterator none;
  for (std::filesystem::directory_iterator thread(process / "task", error); !error && thread != none;
       thread.increment(error)) {
    if (!is_exiting(thread->path())) return std::nullopt;
    ++threads;
  }
  if (error || threads == 0) return std::nullopt;
  const std::vector<std::string> fields = fields_of(process / "stat");
  if (fields.size() <= kExitCode - kFirst) return std::nullopt;
  return std::stoi(fields[kExitCode - kFirst]);
}

}  // namespace horo::tools
