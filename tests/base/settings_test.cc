// The table of settings: documented settings are read, and misspelt names are reported.
#include "horo/base/settings.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>

#include <fstream>
#include <set>
#include <sstream>
#include <stdexcept>

#include "tests/base/refusal.h"

namespace horo {
namespace {

using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;

std::string settings_refusal(const std::map<std::string, std::string>& given) {
  return refusal_of([&] { config_from_environment(given); });
}

class ScopedVariable {
 public:
  ScopedVariable(const char* name, const char* value) : name_(name) { ::setenv(name, value, 1); }
  ~ScopedVariable() { ::unsetenv(name_); }
  ScopedVariable(const ScopedVariable&) = delete;
  ScopedVariable& operator=(const ScopedVariable&) = delete;

 private:
  const char* name_;
};

TEST(Settings, ThePageInTheDocumentationIsWhatTheCodeSays) {
  const std::ifstream file(HORO_SOURCE_DIR "/docs/settings.md");
  std::ostringstream text;
  text << file.rdbuf();
  EXPECT_EQ(text.str(), settings_page()) << "make it again: horo doctor --settings > docs/settings.md";
}

TEST(Settings, EveryNameStandsOnceAndIsExplained) {
  std::set<std::string> names;
  for (const Setting& setting : all_settings()) {
    EXPECT_TRUE(names.insert(setting.name).second) << setting.name;
    EXPECT_THAT(setting.name, testing::MatchesRegex("HORO_[A-Z_]+"));
    EXPECT_FALSE(std::string(setting.meaning).empty()) << setting.name;
    EXPECT_THAT(settings_page(), HasSubstr(std::string("`") + setting.name + "`"));
  }
}

TEST(Settings, EveryDefaultIsAnAllowedValue) {
  for (const Setting& setting : all_settings()) {
    if (setting.default_is != nullptr || value_in(Config(), setting).empty()) continue;
    Config config;
    const std::string value = default_of(setting);
    read_settings([&](const char* name) { return name == std::string(setting.name) ? value.c_str() : nullptr; },
                  config);
    EXPECT_EQ(value_in(config, setting), value) << setting.name;
  }
}

TEST(Settings, EveryNumberIsRefusedOutsideItsRange) {
  for (const Setting& setting : all_settings()) {
    if (setting.range.high == 0) continue;
    for (const std::int64_t number : {setting.range.low - 1, setting.range.high + 1}) {
      Config config;
      const std::string value = std::to_string(number);
      const Lookup get = [&](const char* name) { return name == std::string(setting.name) ? value.c_str() : nullptr; };
      EXPECT_THROW(read_settings(get, config), std::invalid_argument) << setting.name << "=" << value;
    }
  }
}

TEST(Settings, AWordThatIsNoChoiceIsRefusedWithTheChoices) {
  const ScopedVariable level("HORO_LOG_LEVEL", "loud");
  EXPECT_EQ(settings_refusal({}), "HORO_LOG_LEVEL=\"loud\": expected trace, debug, info, warning, error or off");
  for (const char* word : {"", "trace,", "or", "off ", "warning, error"}) {
    const ScopedVariable other("HORO_LOG_LEVEL", word);
    EXPECT_THAT(settings_refusal({}), HasSubstr("expected trace")) << word;
  }
}

TEST(Settings, EveryChoiceIsAccepted) {
  for (const char* word : {"trace", "debug", "info", "warning", "error", "off"}) {
    const ScopedVariable level("HORO_LOG_LEVEL", word);
    EXPECT_EQ(settings_refusal({}), "accepted") << word;
  }
}

TEST(Settings, TheNearestNameIsOffered) {
  const std::map<std::string, std::string> meant = {
      {"HORO_BUKET_BYTES", "HORO_BUCKET_BYTES"},  {"HORO_SIEZ", "HORO_SIZE"},    {"HORO_DEADLINE", "HORO_DEADLINE_MS"},
      {"HORO_bucket_bytes", "HORO_BUCKET_BYTES"}, {"HORO_FUSION_THRESHOLD", ""}, {"HORO_", ""}};
  for (const auto& [wrong, right] : meant) {
    const std::string text = unknown_setting(wrong).value_or("known");
    EXPECT_THAT(text, HasSubstr(wrong + " is not a setting of horo; "));
    EXPECT_THAT(text, HasSubstr(right.empty() ? "'horo doctor --settings' lists" : "did you mean " + right + "?"));
  }
}

TEST(Settings, OurOwnNamesAndThoseOfOthersAreNotUnknown) {
  for (const Setting& setting : all_settings()) EXPECT_FALSE(unknown_setting(setting.name)) << setting.name;
  EXPECT_FALSE(unknown_setting("HOROVOD_RANK"));
  EXPECT_FALSE(unknown_setting("PATH"));
}

TEST(Settings, AVeryLongNameMakesAShortMessage) {
  EXPECT_LT(unknown_setting("HORO_" + std::string(100'000, 'X')).value().size(), 200U);
}

TEST(Settings, UnknownVariablesOfTheEnvironmentAreListed) {
  const ScopedVariable typo("HORO_STAL_LIMIT_MS", "5");
  EXPECT_THAT(unknown_settings_in_environment(), Contains(HasSubstr("did you mean HORO_STALL_LIMIT_MS?")));
}

TEST(Settings, AnUnknownVariableIsToldOnce) {
  const ScopedVariable typo("HORO_MAX_DIM", "5");
  testing::internal::CaptureStderr();
  EXPECT_EQ(settings_refusal({}) + settings_refusal({}), "acceptedaccepted");
  const std::string log = testing::internal::GetCapturedStderr();
  const std::string line = "warning: HORO_MAX_DIM is not a setting of horo; did you mean HORO_MAX_DIMS?";
  EXPECT_THAT(log, HasSubstr(line));
  EXPECT_EQ(log.find(line), log.rfind(line));
}

TEST(Settings, AGivenSettingMustBeOneOfOurs) {
  EXPECT_THAT(settings_refusal({{"HORO_BUKET_BYTES", "1"}}), HasSubstr("did you mean HORO_BUCKET_BYTES?"));
  EXPECT_THAT(settings_refusal({{"BUCKET_BYTES", "1"}}), HasSubstr("expected a name that begins with HORO_"));
  EXPECT_THAT(settings_refusal({{"HORO_LOG_LEVEL", "off"}}), HasSubstr("in the environment alone"));
}

TEST(Settings, AGivenSettingStandsInFrontOfTheEnvironment) {
  const ScopedVariable variable("HORO_BUCKET_BYTES", "1");
  EXPECT_EQ(config_from_environment({{"HORO_BUCKET_BYTES", "2"}}).bucket_bytes, 2U);
}

}  // namespace
}  // namespace horo
