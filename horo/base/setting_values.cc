// Settings are read strictly: the whole string is a number in range or one of the choices; otherwise an error names the
// variable, its value and what was expected. A variable that is not set keeps its default.
#include <algorithm>
#include <charconv>
#include <cstring>
#include <stdexcept>
#include <type_traits>

#include "horo/base/nearest.h"
#include "horo/base/settings.h"

namespace horo {
namespace {

constexpr std::size_t kMaxTextBytes = 255;

using std::chrono::milliseconds;

bool is_number(const Setting& setting) {
  return setting.range.high > setting.range.low;
}

std::int64_t parse(const Setting& setting, const char* text) {
  const char* end = text + std::strlen(text);
  std::int64_t number = 0;
  const auto [stop, error] = std::from_chars(text, end, number);
  if (error != std::errc() || stop != end || number < setting.range.low || number > setting.range.high) {
    refuse_setting(setting.name, text, allowed_by(setting));
  }
  return number;
}

bool parse_switch(const Setting& setting, const std::string& text) {
  if (text != "0" && text != "1") refuse_setting(setting.name, text, allowed_by(setting));
  return text == "1";
}

void check_text(const Setting& setting, const std::string& text) {
  if (setting.choices != nullptr) {
    const std::vector<std::string> words = words_in(setting.choices);
    if (std::find(words.begin(), words.end(), text) != words.end()) return;
    refuse_setting(setting.name, text.substr(0, kMaxTextBytes), allowed_by(setting) + nearest_text(text, words));
  }
  if (text.empty() || text.size() > kMaxTextBytes)
    refuse_setting(setting.name, text.substr(0, kMaxTextBytes), allowed_by(setting));
}

struct Reader {
  const Setting& setting;
  const char* text;
  Config& config;

  void operator()(std::monostate) const {
    if (setting.choices) check_text(setting, text);
    if (is_number(setting)) parse(setting, text);
  }
  void operator()(bool Config::*field) const { config.*field = parse_switch(setting, text); }
  void operator()(milliseconds Config::*field) const { config.*field = milliseconds(parse(setting, text)); }
  void operator()(std::string Config::*field) const {
    check_text(setting, text);
    config.*field = text;
  }
  template <class Number>
  void operator()(Number Config::*field) const {
    config.*field = static_cast<Number>(parse(setting, text));
  }
};

struct Writer {
  const Config& config;

  std::string operator()(std::monostate) const { return ""; }
  std::string operator()(bool Config::*field) const { return config.*field ? "1" : "0"; }
  std::string operator()(milliseconds Config::*field) const { return std::to_string((config.*field).count()); }
  std::string operator()(std::string Config::*field) const { return config.*field; }
  template <class Number>
  std::string operator()(Number Config::*field) const {
    return std::to_string(config.*field);
  }
};

}  // namespace

void refuse_setting(const std::string& name, const std::string& value, const std::string& expected) {
  throw std::invalid_argument(name + "=\"" + value + "\": expected " + expected);
}

void read_settings(const Lookup& get, Config& config) {
  for (const Setting& setting : all_settings()) {
    const char* text = get(setting.name);
    if (text != nullptr) std::visit(Reader{setting, text, config}, setting.field);
  }
}

std::string unit_of(const Setting& setting) {
  const std::string_view name = setting.name;
  if (name.ends_with("_MS")) return "ms";
  return name.ends_with("_BYTES") ? "bytes" : "";
}

std::string value_in(const Config& config, const Setting& setting) {
  return std::visit(Writer{config}, setting.field);
}

std::string default_of(const Setting& setting) {
  if (setting.default_is != nullptr) return setting.default_is;
  const std::string value = value_in(Config(), setting);
  return value.empty() ? "none" : value;
}

std::string allowed_by(const Setting& setting) {
  if (setting.choices != nullptr) return setting.choices;
  if (is_number(setting)) {
    return "a whole number from " + std::to_string(setting.range.low) + " to " + std::to_string(setting.range.high);
  }
  if (std::holds_alternative<bool Config::*>(setting.field)) return "0 or 1";
  if (std::holds_alternative<std::string Config::*>(setting.field)) {
    return "1 to " + std::to_string(kMaxTextBytes) + " bytes";
  }
  return "a path";
}

}  // namespace horo
