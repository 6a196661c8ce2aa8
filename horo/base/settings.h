// All settings as one table: names, fields, ranges, choices and meanings. Settings are read, checked and documented
// (docs/settings.md) from it, and misspelt names are compared with it. A new setting is a field of Config and a row
// here.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "horo/base/config.h"

namespace horo {

// The field of Config that takes the value. monostate: no plain field (the job key), or another program reads it.
using SettingField = std::variant<std::monostate, bool Config::*, int Config::*, std::uint32_t Config::*,
                                  std::size_t Config::*, std::chrono::milliseconds Config::*, std::string Config::*>;

enum class SettingGroup { kWorld, kGradients, kDeadlines, kAudit, kLimits, kProcess };

struct SettingRange {
  std::int64_t low = 0;
  std::int64_t high = 0;
};

struct Setting {
  const char* name = "";  // its last word is its unit: _MS, _BYTES
  SettingGroup group = SettingGroup::kWorld;
  SettingField field{};
  SettingRange range{};              // of numbers
  const char* choices = nullptr;     // "a, b or c": no other value is accepted
  const char* default_is = nullptr;  // null: the field's value in Config()
  bool equal_on_all_ranks = false;   // ranks that differ refuse to start
  bool environment_alone = false;    // read before any session, or by another program: not a setting of init()
  const char* meaning = "";
};

// The table, in the order of the documentation.
std::span<const Setting> all_settings();
const Setting* find_setting(std::string_view name);

// Reads and checks every setting that has a field, or choices, or both. Throws std::invalid_argument: name, value and
// what was expected.
void read_settings(const Lookup& get, Config& config);
[[noreturn]] void refuse_setting(const std::string& name, const std::string& value, const std::string& expected);

std::string unit_of(const Setting& setting);     // "ms", "bytes" or ""
std::string default_of(const Setting& setting);  // as a user writes it
std::string allowed_by(const Setting& setting);  // "a whole number from 0 to 10", "0 or 1", "a, b or c"
// The value in `config`; "" where the field is not a plain one.
std::string value_in(const Config& config, const Setting& setting);

// The message for a name that begins with HORO_ and is no setting, with the nearest name; empty for a setting.
std::optional<std::string> unknown_setting(std::string_view name);
// The same for all variables of this process's environment, in alphabetical order.
std::vector<std::string> unknown_settings_in_environment();

// docs/settings.md.
std::string settings_page();

}  // namespace horo
