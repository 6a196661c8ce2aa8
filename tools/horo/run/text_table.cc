#include "tools/horo/run/text_table.h"

#include <algorithm>

#include "tools/horo/machine/facts.h"

namespace horo::tools {

std::string table_of(const Rows& rows, const std::string& indent, const std::vector<bool>& is_word) {
  std::vector<std::size_t> widths(is_word.size());
  for (const auto& row : rows) {
    for (std::size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], row[i].size());
  }
  std::string text;
  for (const auto& row : rows) {
    std::string line = indent;
    for (std::size_t i = 0; i < row.size(); ++i) {
      const std::string fill(widths[i] - row[i].size(), ' ');
      line += (i == 0 ? "" : "  ") + (is_word[i] ? row[i] + fill : fill + row[i]);
    }
    line.erase(line.find_last_not_of(' ') + 1);
    text += line + "\n";
  }
  return text;
}

std::string grouped(double value) {
  std::string digits = fixed(std::max(value, 0.0), 0);
  for (std::size_t at = digits.size(); at > 3; at -= 3) digits.insert(at - 3, ",");
  return digits;
}

}  // namespace horo::tools
