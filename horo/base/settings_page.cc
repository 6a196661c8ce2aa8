// Writes docs/settings.md from the table: one Markdown table per group.
#include <array>
#include <charconv>
#include <utility>

#include "horo/base/settings.h"

namespace horo {
namespace {

using enum SettingGroup;

constexpr std::array<std::pair<SettingGroup, const char*>, 6> kTitles{{
    {kWorld, "Ranks and hosts"},
    {kGradients, "How gradients travel"},
    {kDeadlines, "Deadlines"},
    {kAudit, "Audit of replicas"},
    {kLimits, "Limits"},
    {kProcess, "Of the process"},
}};

// "26214400 (25 MiB)" is easier to read than the number alone.
std::string with_binary_unit(const std::string& text) {
  std::uint64_t bytes = 0;
  std::from_chars(text.data(), text.data() + text.size(), bytes);
  const std::array<const char*, 4> units{"KiB", "MiB", "GiB", "TiB"};
  std::size_t unit = 0;
  if (bytes == 0 || bytes % 1024 != 0) return text;
  for (bytes /= 1024; bytes % 1024 == 0 && unit + 1 < units.size(); bytes /= 1024) ++unit;
  return text + " (" + std::to_string(bytes) + " " + units[unit] + ")";
}

std::string row(const Setting& setting) {
  const std::string unit = unit_of(setting);
  const std::string value = default_of(setting);
  return std::string("| `") + setting.name + "` | " + (unit == "bytes" ? with_binary_unit(value) : value) + " | " +
         unit + " | " + allowed_by(setting) + " | " + setting.meaning +
         (setting.equal_on_all_ranks ? "; equal on all ranks" : "") + " |\n";
}

constexpr const char* kIntroduction =
    "# Settings\n\n"
    "Every setting is an environment variable; `horo.init(settings={\"HORO_NAME\": \"value\"})` takes precedence over "
    "the\n"
    "environment. A value that is not allowed is an error that says what is; a `HORO_` name that is not listed here "
    "is\n"
    "told with the nearest one that is: an error in `init`, a warning in the environment. `horo doctor` shows what is "
    "in\n"
    "effect. This page is what `horo doctor --settings` prints.\n";

}  // namespace

std::string settings_page() {
  std::string page = kIntroduction;
  for (const auto& [group, title] : kTitles) {
    page += std::string("\n## ") + title + "\n\n| name | default | unit | allowed | meaning |\n|---|---|---|---|---|\n";
    for (const Setting& setting : all_settings()) {
      if (setting.group == group) page += row(setting);
    }
    if (group == kProcess) page += "\nThese are read from the environment alone.\n";
  }
  return page;
}

}  // namespace horo
