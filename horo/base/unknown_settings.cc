// A misspelt setting would have no effect and no message, so every HORO_ name outside the table is reported, with the
// setting that is fewest edits away (Damerau's distance: a letter more, less, another, or two exchanged).
#include <unistd.h>

#include <algorithm>

#include "horo/base/settings.h"

namespace horo {
namespace {

constexpr std::string_view kPrefix = "HORO_";

std::size_t edits_between(std::string_view a, std::string_view b) {
  const std::size_t width = b.size() + 1;
  std::vector<std::size_t> table((a.size() + 1) * width);  // [i * width + j]: between the first i and j letters
  for (std::size_t j = 0; j < width; ++j) table[j] = j;
  for (std::size_t i = 1; i <= a.size(); ++i) {
    std::size_t* row = &table[i * width];
    const std::size_t* above = row - width;
    row[0] = i;
    for (std::size_t j = 1; j < width; ++j) {
      row[j] = std::min({above[j] + 1, row[j - 1] + 1, above[j - 1] + (a[i - 1] == b[j - 1] ? 0 : 1)});
      const bool swapped = i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1];
      if (swapped) row[j] = std::min(row[j], table[(i - 2) * width + j - 2] + 1);
    }
  }
  return table.back();
}

// Null where no name is near: at most a third of the letters may differ.
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
