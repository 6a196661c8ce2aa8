#include "tools/horo/run/config_file.h"

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <stdexcept>
#include <string_view>
#include <system_error>

namespace horo::tools {
namespace {

std::string_view trim(std::string_view text) {
  const std::size_t first = text.find_first_not_of(" \t\r");
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(" \t\r") - first + 1);
}

// Without quotes around it, and without a comment behind it.
std::string plain_value(std::string_view text) {
  if (!text.empty() && (text.front() == '"' || text.front() == '\'')) {
    const std::size_t end = text.find(text.front(), 1);
    if (end != std::string_view::npos) return std::string(text.substr(1, end - 1));
  }
  const std::size_t comment = text.find(" #");
  return std::string(trim(text.substr(0, comment)));
}

}  // namespace

std::vector<ConfigLine> read_config_file(const std::string& path) {
  std::ifstream file(path);
  if (!file) throw std::invalid_argument("--config " + path + ": " + std::strerror(errno));
  if (std::error_code none; std::filesystem::is_directory(path, none)) {
    throw std::invalid_argument("--config " + path + ": expected a file, not a folder");
  }
  std::vector<ConfigLine> lines;
  int number = 0;
  for (std::string text; std::getline(file, text);) {
    ++number;
    const std::string place = "--config " + path + ", line " + std::to_string(number);
    const std::string_view line = trim(text);
    if (line.empty() || line.front() == '#' || line == "---") continue;
    const std::size_t colon = line.find(':');
    const std::string value = colon == std::string_view::npos ? "" : plain_value(trim(line.substr(colon + 1)));
    if (value.empty() || text.front() == ' ' || text.front() == '\t' || line.front() == '-') {
      throw std::invalid_argument(place + ": expected an option and its value, as in: num-proc: 4");
    }
    lines.push_back({std::string(trim(line.substr(0, colon))), value, place});
  }
  if (file.bad()) throw std::invalid_argument("--config " + path + ": it cannot be read to its end");
  return lines;
}

}  // namespace horo::tools
