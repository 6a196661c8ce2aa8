// A misspelt setting would do nothing and say nothing, so every HORO_ name that is in no row of the table is told, with
// the row that is fewest edits away (Damerau's distance: a letter more, less, another, or two exchanged).
#include <unistd.h>

#include <algorithm>

#include "horo/base/settings.h"

namespace horo {
namespace {

constexpr std::string_view kPrefix = "HORO_";

std::size_t edits_between(std::string_view a, std::string_view b) {
  std::vector<std::vector<std::size_t>> table(a.size() + 1, std::vector<std::size_t>(b.size() + 1));
  for (std::size_t i = 0; i <= a.size(); ++i) {
    for (std::size_t j = 0; j <= b.size(); ++j) {
      if (i == 0 || j == 0) {
        table[i][j] = i + j;
        continue;
      }
      const std::size_t other = a[i - 1] == b[j - 1] ? 0 : 1;
      table[i][j] = std::min({table[i - 1][j] + 1, table[i][j - 1] + 1, table[i - 1][j - 1] + other});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1]) {
        table[i][j] = std::min(table[i][j], table[i - 2][j - 2] + 1);
      }
    }
  }
  return table[a.size()][b.size()];
}

// Null where nothing is near: at most a third of the letters may differ.
const char* nearest_name(std::string_view name) {
  const char* nearest = nullptr;
  std::size_t fewest = (name.size() - kPrefix.size()) / 3 + 1;
  for (const Setting& setting : all_settings()) {
    const std::size_t edits = edits_between(name, setting.name);
    if (edits > fewest || (edits == fewest && nearest != nullptr)) continue;
    nearest = setting.name;
    fewest = edits;
  }
  return nearest;
}

constexpr std::size_t kMaxShownBytes = 64;

}  // namespace

std::optional<std::string> unknown_setting(std::string_view name) {
  if (!name.starts_with(kPrefix) || find_setting(name) != nullptr) return std::nullopt;
  name = name.substr(0, kMaxShownBytes);
  const std::string text = std::string(name) + " is not a setting of horo; ";
  const char* nearest = nearest_name(name);
  return nearest != nullptr ? text + "did you mean " + nearest + "?"
                            : text + "'horo doctor --settings' lists all of them";
}

std::vector<std::string> unknown_settings_in_environment() {
  std::vector<std::string> texts;
  for (char** variable = ::environ; variable != nullptr && *variable != nullptr; ++variable) {
    const std::string_view text(*variable);
    if (auto unknown = unknown_setting(text.substr(0, text.find('=')))) texts.push_back(std::move(*unknown));
  }
  std::sort(texts.begin(), texts.end());
  return texts;
}

}  // namespace horo
