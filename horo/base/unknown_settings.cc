// A misspelt setting would have no effect and no message, so every HORO_ name outside the table is reported, with the
// nearest setting.
#include <unistd.h>

#include <algorithm>

#include "horo/base/nearest.h"
#include "horo/base/settings.h"

namespace horo {
namespace {

constexpr std::string_view kPrefix = "HORO_";

constexpr std::size_t kMaxShownBytes = 64;

}  // namespace

std::optional<std::string> unknown_setting(std::string_view name) {
  if (!name.starts_with(kPrefix) || find_setting(name) != nullptr) return std::nullopt;
  name = name.substr(0, kMaxShownBytes);
  const std::string text = std::string(name) + " is not a setting of horo; ";
  std::vector<std::string> names;
  for (const Setting& setting : all_settings())
    names.emplace_back(std::string_view(setting.name).substr(kPrefix.size()));
  const auto nearest = nearest_word(name.substr(kPrefix.size()), names);
  return nearest ? text + "did you mean " + std::string(kPrefix) + *nearest + "?"
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
