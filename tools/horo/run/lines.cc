#include "tools/horo/run/lines.h"

#include <algorithm>
#include <functional>

namespace horo::tools {
namespace {

constexpr std::string_view kGap = " ... ";
constexpr std::size_t kKeptEnd = 60;

std::string for_each_line(std::string_view text, const std::function<std::string(std::string_view)>& change) {
  std::string changed;
  while (!text.empty()) {
    const std::size_t end = text.find('\n');
    changed += change(text.substr(0, end));
    if (end == std::string_view::npos) break;
    changed += '\n';
    text.remove_prefix(end + 1);
  }
  return changed;
}

std::string folded_line(std::string_view line, std::size_t longest) {
  const std::size_t own = std::min(line.find_first_not_of(' '), line.size());
  const std::string indent(own + 4, ' ');
  std::string text;
  std::size_t most = longest;
  while (line.size() > most) {
    std::size_t space = line.rfind(' ', most);
    if (space == std::string_view::npos || line.find_first_not_of(' ') >= space) space = line.find(' ', most);
    if (space == std::string_view::npos) break;
    text.append(line.substr(0, space)).append("\n").append(indent);
    line.remove_prefix(space + 1);
    most = longest > indent.size() ? longest - indent.size() : longest;
  }
  return text.append(line);
}

// Between two bytes of a letter nothing is cut.
bool is_inside_letter(char byte) {
  return (static_cast<unsigned char>(byte) & 0xc0U) == 0x80U;
}

std::string cut_line(std::string_view line) {
  if (line.size() <= kLongestLine) return std::string(line);
  std::size_t begin = kLongestLine - kGap.size() - kKeptEnd, end = line.size() - kKeptEnd;
  while (begin > 0 && is_inside_letter(line[begin])) --begin;
  while (end < line.size() && is_inside_letter(line[end])) ++end;
  return std::string(line.substr(0, begin)).append(kGap).append(line.substr(end));
}

}  // namespace

std::string folded(std::string_view text, std::size_t longest) {
  return for_each_line(text, [longest](std::string_view line) { return folded_line(line, longest); });
}

std::string cut_lines(std::string_view text) {
  return for_each_line(text, cut_line);
}

}  // namespace horo::tools
