// All settings as one table: the names, fields, ranges, choices and meanings from which they are read, checked,
// documented (docs/settings.md) and, when a name is wrong, guessed. A new setting is a field of Config and a row here.
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

// Where a value goes. monostate: it is no plain field of Config (the job key), or somebody else reads it.
using SettingField = std::variant<std::monostate, bool Config::*, int Config::*, std::uint32_t Config::*,
                                  std::size_t Config::*, std::chrono::milliseconds Config::*, std::string Config::*>;

enum class SettingGroup { kWorld, kGradients, kDeadlines, kLimits, kProcess };

struct SettingRange {
  std::int64_t low = 0;
  std::int64_t high = 0;
};

struct Setting {
  const char* name = "";  // its last word is its unit: _MS, _BYTES
  SettingGroup group = SettingGroup::kWorld;
  SettingField field{};
  SettingRange range{};              // of numbers
  const char* choices = nullptr;     // "a, b or c": no other text will do
  const char* default_is = nullptr;  // null: the field's value in Config()
  bool equal_on_all_ranks = false;   // a session is refused where it differs
  bool environment_alone = false;    // read before any session, or by somebody else: no session can be given it
  const char* meaning = "";
};

// In the order of the documentation.
std::span<const Setting> all_settings();
const Setting* find_setting(std::string_view name);

// Reads and checks every setting that has a field, or choices, or both. Throws std::invalid_argument: name, value and
// what was expected.
void read_settings(const Lookup& get, Config& config);
[[noreturn]] void refuse_setting(const std::string& name, const std::string& value, const std::string& expected);

std::string unit_of(const Setting& setting);     // "ms", "bytes" or ""
std::string default_of(const Setting& setting);  // as one would write it
std::string allowed_by(const Setting& setting);  // "a whole number from 0 to 10", "0 or 1", "a, b or c"
// What `config` holds; "" where the field is no plain one.
std::string value_in(const Config& config, const Setting& setting);

// Why a name that begins with HORO_ is none of ours, and what may have been meant; nothing if it is ours.
std::optional<std::string> unknown_setting(std::string_view name);
// The same for all variables of this process's environment, in alphabetical order.
std::vector<std::string> unknown_settings_in_environment();

// docs/settings.md.
std::string settings_page();

}  // namespace horo
