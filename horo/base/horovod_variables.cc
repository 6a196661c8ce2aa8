#include "horo/base/horovod_variables.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <charconv>
#include <cstdint>
#include <cstdlib>
#include <map>

#include "horo/base/settings.h"

namespace horo {
namespace {

constexpr std::string_view kHorovodPrefix = "HOROVOD_";
constexpr const char* kStallSwitch = "HOROVOD_STALL_CHECK_DISABLE";
constexpr const char* kTimeline = "HOROVOD_TIMELINE";
constexpr std::string_view kTimelineLater = "DYNAMIC";  // start_timeline() may follow, as it may here without a setting
constexpr std::int64_t kMostSeconds = 604'800;          // a week, as in the table of settings

struct HorovodNumber {
  const char* variable;
  const char* setting;
  std::int64_t scale;  // the setting's units in one of the variable's
  std::int64_t low;
};

constexpr std::array<HorovodNumber, 5> kNumbers = {{
    {"HOROVOD_FUSION_THRESHOLD", "HORO_BUCKET_BYTES", 1, 0},
    {"HOROVOD_STALL_CHECK_TIME_SECONDS", "HORO_STALL_WARNING_MS", 1000, 0},
    {"HOROVOD_STALL_SHUTDOWN_TIME_SECONDS", "HORO_STALL_LIMIT_MS", 1000, 0},
    {"HOROVOD_GLOO_TIMEOUT_SECONDS", "HORO_DEADLINE_MS", 1000, 1},
    {"HOROVOD_START_TIMEOUT", "HORO_START_TIMEOUT_MS", 1000, 1},
}};

// Taken beside those, some by horo run and by Python, or true without being read: process sets can always be added.
constexpr std::array kTaken = {kStallSwitch,
                               kTimeline,
                               "HOROVOD_LOG_LEVEL",
                               "HOROVOD_ELASTIC_TIMEOUT",
                               "HOROVOD_ELASTIC_RESET_LIMIT",
                               "HOROVOD_DYNAMIC_PROCESS_SETS"};
constexpr std::array kPlace = {"HOROVOD_RANK",       "HOROVOD_SIZE",       "HOROVOD_LOCAL_RANK", "HOROVOD_LOCAL_SIZE",
                               "HOROVOD_CROSS_RANK", "HOROVOD_CROSS_SIZE", "HOROVOD_HOSTNAME"};
// Of its build: images in which Horovod was once installed have them.
constexpr std::array<std::string_view, 11> kBuild = {
    "HOROVOD_WITH",         "HOROVOD_GPU",    "HOROVOD_NCCL_",        "HOROVOD_CUDA_",
    "HOROVOD_ROCM_",        "HOROVOD_BUILD_", "HOROVOD_ALLOW_MIXED_", "HOROVOD_CMAKE",
    "HOROVOD_SKIP_COMPILE", "HOROVOD_DEBUG",  "HOROVOD_LOCAL_VERSION"};

template <class List>
bool has(const List& list, std::string_view name) {
  return std::find(list.begin(), list.end(), name) != list.end();
}

std::string scaled(const HorovodNumber& row, const std::string& text) {
  std::int64_t number = 0;
  const char* end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, number);
  const std::int64_t most = row.scale == 1 ? std::int64_t{1} << 40 : kMostSeconds;
  if (error != std::errc() || stop != end || number < row.low || number > most) {
    refuse_setting(row.variable, text,
                   "a whole number from " + std::to_string(row.low) + " to " + std::to_string(most));
  }
  return std::to_string(number * row.scale);
}

// An empty variable counts as none: templates of containers have such.
const char* given(const Lookup& get, const char* name) {
  const char* value = get(name);
  return value != nullptr && *value != '\0' ? value : nullptr;
}

// As Horovod reads switches: any number above 0 is on.
bool is_on(const char* value) {
  return value != nullptr && std::strtol(value, nullptr, 10) > 0;
}

bool is_told(std::string_view name) {
  const auto is_of_build = [name](std::string_view prefix) { return name.starts_with(prefix); };
  const auto is_number = [name](const HorovodNumber& row) { return name == row.variable; };
  return name.starts_with(kHorovodPrefix) && !has(kTaken, name) && !has(kPlace, name) &&
         std::none_of(kBuild.begin(), kBuild.end(), is_of_build) &&
         std::none_of(kNumbers.begin(), kNumbers.end(), is_number);
}

std::vector<std::string> told_names() {
  std::vector<std::string> names;
  for (char** variable = ::environ; variable != nullptr && *variable != nullptr; ++variable) {
    const std::string_view text(*variable);
    const std::string_view name = text.substr(0, text.find('='));
    if (is_told(name) && text.size() > name.size() + 1) names.emplace_back(name);
  }
  std::sort(names.begin(), names.end());
  return names;
}

}  // namespace

Lookup with_horovod_variables(const Lookup& get) {
  std::map<std::string, std::string, std::less<>> values;
  for (const HorovodNumber& row : kNumbers) {
    const char* value = given(get, row.variable);
    if (value != nullptr && get(row.setting) == nullptr) values[row.setting] = scaled(row, value);
  }
  if (is_on(get(kStallSwitch))) values["HORO_STALL_WARNING_MS"] = "0";
  const char* timeline = given(get, kTimeline);
  if (timeline != nullptr && timeline != kTimelineLater) values["HORO_TIMELINE"] = timeline;
  if (values.empty()) return get;
  return [values, get](const char* name) -> const char* {
    if (const char* value = get(name)) return value;
    const auto found = values.find(name);
    return found == values.end() ? nullptr : found->second.c_str();
  };
}

std::optional<std::string> log_level_of_horovod(std::string_view level) {
  std::string name(level);
  for (char& letter : name) letter = static_cast<char>(std::tolower(static_cast<unsigned char>(letter)));
  if (name == "fatal") return "error";
  for (const char* known : {"trace", "debug", "info", "warning", "error"}) {
    if (name == known) return name;
  }
  return std::nullopt;
}

std::vector<std::string> horovod_remarks(bool is_placed) {
  std::vector<std::string> remarks;
  std::string list;
  for (const std::string& name : told_names()) list.append(list.empty() ? "" : ", ").append(name);
  if (!list.empty()) remarks.push_back(list + ": no effect in horo (docs/from_horovod.md)");
  const char* size = std::getenv("HOROVOD_SIZE");
  const bool is_of_horovod = std::getenv("HOROVOD_GLOO_RENDEZVOUS_ADDR") != nullptr;  // horo run sets none
  if (!is_placed && is_of_horovod && size != nullptr && std::string_view(size) != "1") {
    remarks.push_back(std::string("HOROVOD_SIZE=") + size +
                      " of Horovod's launcher is not taken, and this process is a world of its own: horo's horovodrun "
                      "or horo run start the ranks");
  }
  return remarks;
}

}  // namespace horo
